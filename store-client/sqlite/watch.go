package sqlite

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/utils/clock"
)

// A write to the log is seen before its commit is: the log is flushed first.
// So a write wakes at once and again after growing delays.
const (
	firstEcho = 5 * time.Millisecond
	lastEcho  = 200 * time.Millisecond
)

// watch wakes after writes to the file's write-ahead log until ctx ends. If the
// file cannot be watched, the feeds' polling is left.
func watch(ctx context.Context, path string, clk clock.Clock, log *slog.Logger, notify func()) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("watching the database file; feeds poll instead", "error", err)
		return
	}
	defer w.Close()
	// The folder, because the log is removed and made anew.
	if err := w.Add(filepath.Dir(path)); err != nil {
		log.Warn("watching the database file; feeds poll instead", "error", err)
		return
	}
	notify() // what was written before was not heard
	var echo <-chan time.Time
	delay := firstEcho
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-w.Events:
			if !ok {
				return
			}
			if ev.Name == path+"-wal" {
				notify()
				delay = firstEcho
				echo = clk.After(delay)
			}
		case <-echo:
			notify()
			echo = nil
			if delay < lastEcho {
				delay *= 3
				echo = clk.After(delay)
			}
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			log.Warn("watching the database file", "error", err)
			notify()
		}
	}
}
