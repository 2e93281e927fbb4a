package e2e

import (
	"bufio"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// unwanted are words that no service's log has: a right that is missing, a certificate
// or a token that is not believed, a program that is wrong.
var unwanted = []string{"forbidden", "x509", "Unauthenticated", "PermissionDenied", "panic:", "fatal error:"}

// expected is what a leader says whose part of the release is removed: its rights go before
// it does.
const expected = "lease not released, it ends by time"

// logs reads the logs of all pods of the installation, also of those that go.
type logs struct {
	mu    sync.Mutex
	files map[string]*tail
	said  []string
	lines int
}

// tail is a file as far as it was read, and the beginning of a line without its end.
type tail struct {
	*bufio.Reader
	begun string
}

// follow reads all logs below a folder until ctx ends.
func follow(ctx context.Context, folder string) *logs {
	l := &logs{files: map[string]*tail{}}
	go func() {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			l.look(folder)
			<-tick.C
		}
	}()
	return l
}

// look reads what is new. A file that is open is read to its end although it is gone.
func (l *logs) look(folder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && l.files[path] == nil && strings.Contains(path, "/"+namespace+"_") {
			if file, err := os.Open(path); err == nil {
				l.files[path] = &tail{Reader: bufio.NewReader(file)}
			}
		}
		return nil // what has gone meanwhile is passed over
	})
	for path, file := range l.files {
		for {
			text, err := file.ReadString('\n')
			file.begun += text
			if err != nil { // as far as it is written
				break
			}
			l.judge(path, file.begun)
			file.begun = ""
		}
	}
}

// judge notes a line that should not be.
func (l *logs) judge(path, line string) {
	l.lines++
	if strings.Contains(line, expected) {
		return
	}
	for _, word := range unwanted {
		if strings.Contains(line, word) {
			l.said = append(l.said, filepath.Base(filepath.Dir(filepath.Dir(path)))+": "+strings.TrimSpace(line))
			return
		}
	}
}

// complaints are all such lines so far.
func (l *logs) complaints() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said
}

// count is how many lines were read, of how many containers.
func (l *logs) count() (lines, files int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines, len(l.files)
}
