package source

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// logFile is a file of the log, packed or not.
type logFile interface {
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

// openLog opens a file for reading by place.
func openLog(e entry) (logFile, error) {
	f, err := os.Open(e.path)
	if err != nil {
		return nil, err
	}
	if e.packed {
		return &packedFile{File: f}, nil
	}
	return f, nil
}

// packedWindow is how much of what was unpacked last is kept: readers take a few
// lines of a chunk, and then begin again behind them.
const packedWindow = 4 * chunk

// packedFile is a file that rotation has packed with gzip. It is read by the
// places of what is in it, which is cheap as long as they follow each other.
type packedFile struct {
	*os.File
	unpacked *gzip.Reader
	at       int64  // place of unpacked
	last     []byte // what stands before that
	broken   error  // why it ends before its end
	told     bool   // that it does
}

// ReadAt reads what stands at a place. A file that is damaged ends there.
func (p *packedFile) ReadAt(buf []byte, off int64) (int, error) {
	if p.unpacked == nil || off < p.at-int64(len(p.last)) {
		if err := p.rewind(); err != nil {
			return 0, p.failed(err)
		}
	}
	var err error
	for err == nil && p.at < off+int64(len(buf)) {
		err = p.unpack(off)
	}
	n := 0
	if begin := p.at - int64(len(p.last)); off < p.at {
		n = copy(buf, p.last[off-begin:])
	}
	if n < len(buf) {
		return n, p.failed(err)
	}
	return n, nil
}

// unpack goes a chunk on, and keeps the window and what stands behind a place.
func (p *packedFile) unpack(from int64) error {
	part := make([]byte, chunk)
	n, err := io.ReadFull(p.unpacked, part)
	p.last, p.at = append(p.last, part[:n]...), p.at+int64(n)
	keep := max(p.at-from, int64(packedWindow))
	if old := int64(len(p.last)) - keep; old > 0 {
		p.last = append(p.last[:0], p.last[old:]...)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) && n > 0 {
		return nil // its end, or damage: the next chunk tells
	}
	return err
}

func (p *packedFile) rewind() error {
	if _, err := p.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r, err := gzip.NewReader(bufio.NewReaderSize(p.File, chunk))
	if err != nil {
		return err
	}
	p.unpacked, p.at, p.last = r, 0, p.last[:0]
	return nil
}

// failed makes damage the end of the file.
func (p *packedFile) failed(err error) error {
	if p.broken == nil && !errors.Is(err, io.EOF) {
		p.broken = fmt.Errorf("unpacking: %w", err)
	}
	return io.EOF
}

// checkPacked counts a packed file that ended in damage.
func (s *File) checkPacked() {
	if p, ok := s.open.(*packedFile); ok && p.broken != nil && !p.told {
		s.gap(0, fmt.Sprintf("the rest of %s cannot be read: %v", p.Name(), p.broken))
		p.told = true
	}
}
