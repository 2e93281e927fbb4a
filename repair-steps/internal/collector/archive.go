package collector

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// archive is a tar.gz that is being written.
type archive struct {
	file *os.File
	gz   *gzip.Writer
	tar  *tar.Writer
	at   time.Time
}

func newArchive(path string, at time.Time) (*archive, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the archive: %w", err)
	}
	gz := gzip.NewWriter(f)
	return &archive{file: f, gz: gz, tar: tar.NewWriter(gz), at: at}, nil
}

// add writes one file of size bytes.
func (a *archive) add(name string, size int64, from io.Reader) error {
	err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: a.at, Format: tar.FormatPAX})
	if err == nil {
		_, err = io.CopyN(a.tar, from, size)
	}
	if err != nil {
		return fmt.Errorf("writing %s into the archive: %w", name, err)
	}
	return nil
}

// finish writes the manifest and closes the archive.
func (a *archive) finish(m Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	err = a.add(ManifestName, int64(len(text)), bytes.NewReader(text))
	if err = errors.Join(err, a.tar.Close(), a.gz.Close(), a.file.Close()); err != nil {
		return fmt.Errorf("finishing the archive: %w", err)
	}
	return nil
}
