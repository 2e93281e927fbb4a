// Package clearance follows the file in which a node's connector tells its
// monitors which records people cleared (nodemark.Cleared).
package clearance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// fileBytes bounds the file: as many records of 36 characters as it has, and
// more.
const fileBytes = 256 << 10

// File follows one such file.
type File struct {
	path       string
	seen, done version
	said       string // the last error
}

// version tells two contents apart without reading them.
type version struct {
	size    int64
	changed time.Time
}

// Follow prepares to read the file; an empty path never tells anything.
func Follow(path string) *File { return &File{path: path} }

// Read returns the ids of the records that were cleared, if the file has changed
// since Done, and nothing otherwise. A file that others than its owner may write,
// or that cannot be understood, is not believed. The same error in a row is
// returned once.
func (f *File) Read() (map[string]bool, error) {
	ids, err := f.read()
	text := fmt.Sprint(err)
	if err != nil && text == f.said {
		return nil, nil
	}
	f.said = text
	return ids, err
}

func (f *File) read() (map[string]bool, error) {
	if f.path == "" {
		return nil, nil
	}
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for what people cleared: %w", err)
	}
	f.seen = version{info.Size(), info.ModTime()}
	if f.seen == f.done {
		return nil, nil
	}
	if info.Mode()&0o022 != 0 || info.Size() > fileBytes {
		return nil, fmt.Errorf("file of what people cleared is not believed: %s has mode %s and %d bytes", f.path, info.Mode(), info.Size())
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("reading what people cleared: %w", err)
	}
	told, err := nodemark.ParseCleared(data)
	if err != nil {
		return nil, fmt.Errorf("file of what people cleared is not believed: %w", err)
	}
	ids := map[string]bool{}
	for _, id := range told.Records {
		ids[id] = true
	}
	return ids, nil
}

// Done says that what Read returned last is dealt with.
func (f *File) Done() { f.done = f.seen }
