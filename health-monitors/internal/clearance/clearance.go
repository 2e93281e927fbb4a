// Package clearance follows the file in which a node's connector tells its
// monitors which records people cleared (record.ClearedList).
package clearance

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
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

// IDs are those of the records that people cleared.
type IDs map[string]bool

// Any says whether a fault was cleared that was told by the events of these ids:
// itself, or the record by which its connector had it acted upon once it was
// confirmed.
func (c IDs) Any(told []string) bool {
	return slices.ContainsFunc(told, func(id string) bool {
		confirmation, err := record.ConfirmationID(id)
		return c[id] || err == nil && c[confirmation]
	})
}

// Follow prepares to read the file; an empty path never tells anything.
func Follow(path string) *File { return &File{path: path} }

// Take hands the ids of the records that were cleared to forget, if the file has
// changed since that took them; what it fails with is returned, and it gets them
// again. A file that others than its owner may write, or that cannot be understood,
// is not believed; the same problem in a row is logged once.
func (f *File) Take(log *slog.Logger, forget func(IDs) error) error {
	ids, err := f.read()
	if text := fmt.Sprint(err); text != f.said {
		if f.said = text; err != nil {
			log.Warn("what people cleared is not taken over until it can be read", "error", err)
		}
	}
	if ids == nil {
		return nil
	}
	if err := forget(ids); err != nil {
		return err
	}
	f.done = f.seen
	return nil
}

func (f *File) read() (IDs, error) {
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
	told, err := record.ParseCleared(data)
	if err != nil {
		return nil, fmt.Errorf("file of what people cleared is not believed: %w", err)
	}
	ids := IDs{}
	for _, id := range told.Records {
		ids[id] = true
	}
	return ids, nil
}
