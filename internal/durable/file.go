// Package durable writes files that survive a power cut whole.
//
// The state that a program keeps in one file is a JSON object with its version: Load and
// Save.
package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Replace writes data under the name of path, whole or not at all, and returns
// when it would survive a power cut. A new file gets the mode, less the umask.
func Replace(path string, data []byte, mode os.FileMode) error {
	temp := path + ".TEMP"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes created, renamed and removed files of a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closing := d.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("syncing folder %s: %w", dir, err)
	}
	return nil
}

// ErrDamaged is the error of a file whose content cannot be used: the disk does not give
// it back, it is no JSON, or it is of a version that is not known. Other errors show
// nothing about the content.
var ErrDamaged = errors.New("the content is unusable")

// Unreadable reports whether an error of a read is the disk's, about these bytes: they are
// lost, as they are where a checksum does not match.
func Unreadable(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBADMSG) || errors.Is(err, errChecksum)
}

// Versions are those of a file's shape that a program reads. A file without a version
// is of version 0.
type Versions struct{ Oldest, Newest int }

// Load reads a file into a value, and reports whether there is one. After an error the
// value is not to be used.
func Load(path string, known Versions, into any) (found bool, err error) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case Unreadable(err):
		return true, fmt.Errorf("reading %s: %w: %w", path, ErrDamaged, err)
	case err != nil:
		return true, fmt.Errorf("reading %s: %w", path, err)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return true, fmt.Errorf("decoding %s: %w: %w", path, ErrDamaged, err)
	}
	if head.Version < known.Oldest || head.Version > known.Newest {
		return true, fmt.Errorf("decoding %s: %w: its version is %d, must be %d to %d",
			path, ErrDamaged, head.Version, known.Oldest, known.Newest)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return true, fmt.Errorf("decoding %s: %w: %w", path, ErrDamaged, err)
	}
	return true, nil
}

// Save writes a value, which has the field version, and returns the size of the file.
func Save(path string, value any) (size int, err error) {
	b, err := json.Marshal(value)
	if err != nil {
		return 0, fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	b = append(b, '\n')
	if err := Replace(path, b, 0o640); err != nil {
		return 0, fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return len(b), nil
}
