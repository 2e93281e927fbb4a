package collector

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// tail keeps the last bytes of what is written to it, in two files: the newer one takes
// the older one's place when it is full. On the disk it has twice its limit at most, in
// the memory nothing.
type tail struct {
	dir   string
	limit int64

	older, newer *os.File // nil: none
	size         int64    // of newer
	cut          bool     // something was dropped
}

// Write takes whole lines.
func (t *tail) Write(p []byte) (int, error) {
	if t.newer == nil || t.size > 0 && t.size+int64(len(p)) > t.limit {
		if err := t.turn(); err != nil {
			return 0, err
		}
	}
	n, err := t.newer.Write(p)
	t.size += int64(n)
	return n, err
}

// turn begins a new file.
func (t *tail) turn() error {
	f, err := os.CreateTemp(t.dir, "part-")
	if err != nil {
		return fmt.Errorf("keeping a part: %w", err)
	}
	if t.older != nil {
		t.cut = true
		_ = drop(t.older)
	}
	t.older, t.newer, t.size = t.newer, f, 0
	return nil
}

// kept is what a tail has kept.
type kept struct {
	io.Reader
	size int64
	// cut: the begin of all was dropped.
	cut bool
}

// read gives what is kept, from the begin of a line on.
func (t *tail) read() (kept, error) {
	var files []io.Reader
	size := int64(0)
	for _, f := range []*os.File{t.older, t.newer} {
		if f == nil {
			continue
		}
		end, err := f.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			return kept{}, fmt.Errorf("reading a part: %w", err)
		}
		files = append(files, f)
		size += end
	}
	from := bufio.NewReader(io.MultiReader(files...))
	if size <= t.limit {
		return kept{from, size, t.cut}, nil
	}
	skipped, err := io.CopyN(io.Discard, from, size-t.limit)
	if err != nil {
		return kept{}, fmt.Errorf("reading a part: %w", err)
	}
	rest, err := skipLine(from)
	if err != nil {
		return kept{}, fmt.Errorf("reading a part: %w", err)
	}
	return kept{from, size - skipped - rest, true}, nil
}

// skipLine drops the rest of a line and says how many bytes that were.
func skipLine(from *bufio.Reader) (n int64, err error) {
	for {
		piece, err := from.ReadSlice('\n')
		n += int64(len(piece))
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return n, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return n, err
		}
	}
}

// close removes the files.
func (t *tail) close() error {
	return errors.Join(drop(t.older), drop(t.newer))
}

func drop(f *os.File) error {
	if f == nil {
		return nil
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
