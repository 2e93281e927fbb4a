package source

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// printBytes is how many of a file's first bytes tell it from another one that
// got its inode.
const printBytes = 256

// fileID is a file's identity while it exists.
type fileID struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// identify reads the identity from the file's state.
func identify(info fs.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{Device: uint64(st.Dev), Inode: st.Ino}
}

// print is the fingerprint of a file's first Length bytes.
type print struct {
	Length int    `json:"length"`
	Sum    string `json:"sum"`
}

func fingerprint(head []byte) print {
	sum := sha256.Sum256(head)
	return print{len(head), hex.EncodeToString(sum[:8])}
}

// matches tells whether a file that begins with head can be the printed one.
func (p print) matches(head []byte) bool {
	return len(head) >= p.Length && (p.Length == 0 || fingerprint(head[:p.Length]) == p)
}

// print is the fingerprint of what has been read of the open file.
func (s *File) print() print {
	n := min(int64(len(s.head)), s.cursor.Offset)
	if int64(s.cursor.Print.Length) == n && n > 0 {
		return s.cursor.Print
	}
	return fingerprint(s.head[:n])
}

// readHead completes the first bytes of the open file.
func (s *File) readHead() error {
	if len(s.head) == printBytes {
		return nil
	}
	buf := make([]byte, printBytes)
	n, err := s.open.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the beginning of the log: %w", err)
	}
	s.head = buf[:n]
	return nil
}

// checkCut finds out whether the open file was cut or rewritten in place, and
// starts it again if so.
func (s *File) checkCut() error {
	info, err := s.open.Stat()
	if err != nil {
		return fmt.Errorf("looking at the log: %w", err)
	}
	if info.Size() >= s.cursor.Offset+s.scanned {
		before := s.head
		s.head = nil
		if err := s.readHead(); err != nil {
			s.head = before
			return err
		}
		if bytes.HasPrefix(s.head, before) {
			return nil
		}
	}
	s.head = nil
	if err := s.readHead(); err != nil {
		return err
	}
	s.again(true)
	return nil
}

// rotate moves on when the name stands for another file: first the old file is
// read to its end once more (its writer has left it, for the next one is being
// written), then the next file begins. moved is false when there is nothing to
// move to, or when files are being renamed at this moment.
func (s *File) rotate(limit int) (lines []Line, moved bool, err error) {
	next, ok, err := s.next()
	if err != nil || !ok {
		return nil, false, err
	}
	if lines, err = s.lines(nil, limit); err != nil || len(lines) > 0 {
		return lines, true, err
	}
	if s.scanned > 0 { // its newline will not come any more
		s.scanned++
		last := s.finish()
		s.cursor.Offset--
		last.Cursor = s.Cursor()
		return []Line{last}, true, nil
	}
	again, ok, err := s.next()
	if err != nil || !ok || again.id != next.id {
		return nil, false, err
	}
	place := s.cursor.Past
	if err := s.use(again, 0); err != nil {
		return nil, false, err
	}
	s.cursor.Past = place
	return nil, true, nil
}

// next is the file to move to, if the open one has been rotated away and its
// writer has moved on.
func (s *File) next() (entry, bool, error) {
	files, err := family(s.path)
	if err != nil {
		return entry{}, false, err
	}
	next, ok := after(files, s.cursor.Changed, s.cursor.ID, s.path)
	return next, ok && next.size > 0 && !s.named(files), nil
}

// named tells whether the followed name still stands for the open file.
func (s *File) named(files []entry) bool {
	for _, f := range files {
		if f.id == s.cursor.ID {
			return filepath.Clean(f.path) == filepath.Clean(s.path)
		}
	}
	return false
}

// entry is one file of the family: the followed name and its rotated siblings.
type entry struct {
	path    string
	id      fileID
	size    int64
	changed int64
}

// packed are the endings of rotated files that we cannot read.
var packed = []string{".gz", ".xz", ".bz2", ".zst", ".lz4"}

// family lists the followed file and what rotation made of its predecessors
// (kern.log.1, kern.log-20260101).
func family(path string) ([]entry, error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the log folder: %w", err)
	}
	var out []entry
	for _, name := range names {
		if n := name.Name(); n != base && !rotated(n, base) {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, name.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // renamed or removed since the listing
		}
		if err != nil {
			return nil, fmt.Errorf("looking at the log folder: %w", err)
		}
		if info.Mode().IsRegular() {
			out = append(out, entry{filepath.Join(dir, name.Name()), identify(info), info.Size(), info.ModTime().UnixNano()})
		}
	}
	return out, nil
}

// rotated tells whether a name is base's after a rotation: base, a dot or a
// hyphen, a number or a date, and no packer's ending.
func rotated(name, base string) bool {
	rest, ok := strings.CutPrefix(name, base)
	return ok && len(rest) > 1 && (rest[0] == '.' || rest[0] == '-') &&
		rest[1] >= '0' && rest[1] <= '9' && !slices.Contains(packed, filepath.Ext(name))
}

// age is a file's place in the row of a rotation: by its last write, and, where
// two writes fall into one tick of the file system's clock, by its name.
type age struct{ changed, rank int64 }

func (a age) compare(b age) int {
	return cmp.Or(cmp.Compare(a.changed, b.changed), cmp.Compare(a.rank, b.rank))
}

// age of a file; a higher number is older (kern.log.2), a higher date younger
// (kern.log-20260102), and base itself the youngest.
func (e entry) age(base string) age {
	name := strings.TrimPrefix(filepath.Base(e.path), base)
	if name == "" {
		return age{e.changed, math.MaxInt64}
	}
	digits := name[1:]
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case err != nil:
		return age{e.changed, 0}
	case len(digits) < len("20260102"):
		return age{e.changed, -n}
	}
	return age{e.changed, n}
}

// inLine sorts the files that come after the one of id: rotated siblings by
// their age, the followed name at the end. changed is when that file was
// written last, for the case that it is gone.
func inLine(files []entry, changed int64, id fileID, path string) []entry {
	base := filepath.Base(path)
	from := age{changed, math.MaxInt64}
	for _, f := range files {
		if f.id == id {
			from = f.age(base)
		}
	}
	var out, last []entry
	for _, f := range files {
		switch {
		case f.id == id:
		case filepath.Base(f.path) == base:
			last = append(last, f)
		case f.age(base).compare(from) > 0 && f.size > 0:
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return a.age(base).compare(b.age(base)) })
	return append(out, last...)
}

// after is the file that comes after one, if there is any.
func after(files []entry, changed int64, id fileID, path string) (entry, bool) {
	row := inLine(files, changed, id, path)
	if len(row) == 0 {
		return entry{}, false
	}
	return row[0], true
}
