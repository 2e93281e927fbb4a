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

// ErrDamaged is the error of a file whose content cannot be used: the disk does not give
// it back, it is no JSON, or it is of a version that is not known. Other errors say
// nothing about the content.
var ErrDamaged = errors.New("the content cannot be used")

// Versions are those of a file's shape that a program reads. A file without a version
// is of version 0.
type Versions struct{ Oldest, Newest int }

// Load reads a file into a value, and says whether there is one. After an error the
// value is not to be used.
func Load(path string, known Versions, into any) (found bool, err error) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EBADMSG), errors.Is(err, syscall.EUCLEAN):
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
		return true, fmt.Errorf("decoding %s: %w: its version is %d, not %d to %d",
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
