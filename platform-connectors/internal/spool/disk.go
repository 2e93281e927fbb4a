package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nvidia/nvsentinel/internal/durable"
)

// pread reads a piece of a file, as (*os.File).ReadAt does.
type pread func(f *os.File, b []byte, at int64) (int, error)

const (
	// page is the piece of a file that a disk fails to read at least.
	page = 4096
	// tries is how often a piece is read before it is given up for lost.
	tries = 3
	// illegible is in the place of each byte that the disk does not give back. It
	// is in no preallocated space, so it counts as damage.
	illegible = 0xFF
)

// file reads a whole segment. Pages that the disk does not give back are illegible, and
// lost reports whether there are any: the rest must not be lost with them. Other errors
// mean nothing for what is on the disk.
func (read pread) file(path string) (data []byte, lost bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	data = make([]byte, info.Size())
	if _, err := read(f, data, 0); err == nil || errors.Is(err, io.EOF) {
		return data, false, nil
	}
	for at := 0; at < len(data); at += page {
		piece := data[at:min(at+page, len(data))]
		switch err := read.again(f, piece, int64(at)); {
		case err == nil:
		case durable.Unreadable(err):
			lost = true
			copy(piece, bytes.Repeat([]byte{illegible}, len(piece)))
		default:
			return nil, false, fmt.Errorf("reading %d bytes at %d: %w", len(piece), at, err)
		}
	}
	return data, lost, nil
}

// piece fills the buffer from a place of a file.
func (read pread) piece(path string, buffer []byte, at int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = read(f, buffer, at)
	return errors.Join(err, f.Close())
}

// again reads a piece, several times if need be.
func (read pread) again(f *os.File, b []byte, at int64) error {
	var err error
	for range tries {
		var n int
		if n, err = read(f, b, at); n == len(b) {
			return nil
		}
	}
	return err
}
