package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/internal/durable"
)

// Names of the files in a folder; no others are touched.
const (
	prefix  = "nvsentinel-logs-"
	suffix  = ".tar.gz"
	partial = ".partial"
)

// folder keeps archives on the node.
type folder struct{ StorageConfig }

// Take copies the file into the folder, so that it is whole after a power cut, and then
// removes the oldest beyond the bound.
func (f folder) Take(_ context.Context, file string) (string, error) {
	path := filepath.Join(f.KeepDir, prefix+f.Name+suffix)
	if err := copyTo(path+partial, file); err != nil {
		return "", fmt.Errorf("storing the archive: %w", errors.Join(err, os.Remove(path+partial)))
	}
	if err := os.Rename(path+partial, path); err != nil {
		return "", fmt.Errorf("storing the archive: %w", err)
	}
	if err := f.prune(filepath.Base(path)); err != nil {
		return "", fmt.Errorf("removing old archives: %w", err)
	}
	return path, durable.SyncDir(f.KeepDir)
}

func copyTo(path, file string) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Sync(), to.Close())
}

// prune removes all but the newest archives, and what crashes left of others. The one that
// just came is the newest, whatever the clocks show.
func (f folder) prune(newest string) error {
	entries, err := os.ReadDir(f.KeepDir)
	if err != nil {
		return err
	}
	type archive struct {
		name string
		at   time.Time
	}
	var kept []archive
	var problems []error
	for _, e := range entries {
		name := e.Name()
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(name, prefix) || name == newest:
		case strings.HasSuffix(name, suffix+partial):
			problems = append(problems, os.Remove(filepath.Join(f.KeepDir, name)))
		case strings.HasSuffix(name, suffix):
			kept = append(kept, archive{name, info.ModTime()})
		}
	}
	slices.SortFunc(kept, func(a, b archive) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.name, b.name)) })
	for _, a := range kept[min(len(kept), f.Keep-1):] {
		problems = append(problems, os.Remove(filepath.Join(f.KeepDir, a.name)))
	}
	return errors.Join(problems...)
}
