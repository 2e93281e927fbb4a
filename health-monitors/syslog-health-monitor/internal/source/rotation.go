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
	"regexp"
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
// goes on elsewhere if so.
func (s *File) checkCut() error {
	if s.packed {
		return nil
	}
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
		tail := make([]byte, len(s.tail))
		if _, err := s.open.ReadAt(tail, s.cursor.TailAt-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the log: %w", err)
		}
		if bytes.HasPrefix(s.head, before) && bytes.Equal(tail, s.tail) {
			return nil
		}
	}
	s.head = nil
	if err := s.readHead(); err != nil {
		return err
	}
	return s.again(s.cursor, true)
}

// markTail remembers what stands before the place.
func (s *File) markTail() error {
	if s.cursor.TailAt == s.cursor.Offset {
		return nil
	}
	tail := make([]byte, min(printBytes, s.cursor.Offset))
	if n, err := s.open.ReadAt(tail, s.cursor.Offset-int64(len(tail))); n < len(tail) {
		return fmt.Errorf("reading the log before %d: %w", s.cursor.Offset, err)
	}
	s.tail = tail
	s.cursor.TailAt, s.cursor.Tail = s.cursor.Offset, fingerprint(tail)
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
	position := s.cursor.Past
	if err := s.use(again, 0); err != nil {
		return nil, false, err
	}
	s.cursor.Past = position
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
	packed  bool // with gzip
}

// gzipped is the ending of rotated files that are read packed, unreadable are
// those of files that are not read.
const gzipped = ".gz"

var unreadable = []string{".xz", ".bz2", ".zst", ".lz4"}

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
	there := map[string]bool{}
	for _, name := range names {
		there[name.Name()] = true
	}
	for _, name := range names {
		n := name.Name()
		if n != base && !rotated(n, base) {
			continue
		}
		plain, packed := strings.CutSuffix(n, gzipped)
		if packed && there[plain] {
			continue // being packed
		}
		info, err := os.Stat(filepath.Join(dir, name.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // renamed or removed since the listing
		}
		if err != nil {
			return nil, fmt.Errorf("looking at the log folder: %w", err)
		}
		if info.Mode().IsRegular() {
			out = append(out, entry{filepath.Join(dir, n), identify(info), info.Size(), info.ModTime().UnixNano(), packed && n != base})
		}
	}
	return out, nil
}

// rotated tells whether a name is base's after a rotation: base, a dot or a
// hyphen, a number or a date, and no ending of a packer that we cannot read.
func rotated(name, base string) bool {
	rest, ok := strings.CutPrefix(name, base)
	return ok && len(rest) > 1 && (rest[0] == '.' || rest[0] == '-') &&
		rest[1] >= '0' && rest[1] <= '9' && !slices.Contains(unreadable, filepath.Ext(name))
}

// dated is what of a rotated name says when: a number, or a date with whatever
// stands between its parts.
var dated = regexp.MustCompile(`^\d+(-\d+)*`)

// rank is a file's place in the row of a rotation, by its name: a higher number
// is older (kern.log.2), a higher date younger (kern.log-20260102), and base
// itself the youngest. Its time says nothing where a clock was set back.
func (e entry) rank(base string) int64 {
	name := strings.TrimPrefix(filepath.Base(e.path), base)
	if name == "" {
		return math.MaxInt64
	}
	digits := strings.ReplaceAll(dated.FindString(name[1:]), "-", "")
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case err != nil:
		return 0
	case len(digits) < len("20260102"):
		return -n
	}
	return n
}

// younger orders the files of a row, those of one rank (several of a day) by the
// rest of their names.
func younger(base string) func(a, b entry) int {
	return func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.rank(base), b.rank(base)), strings.Compare(a.path, b.path))
	}
}

// inLine sorts the files that come after the one of id: rotated siblings by
// their names, the followed name at the end. If that file is gone, and its name
// with it, those come after it that were written after changed.
func inLine(files []entry, changed int64, id fileID, path string) []entry {
	base := filepath.Base(path)
	order := younger(base)
	follows := func(f entry) bool { return f.changed > changed }
	for _, f := range files {
		if f.id == id {
			from := f
			follows = func(f entry) bool { return order(f, from) > 0 }
		}
	}
	var out, last []entry
	for _, f := range files {
		switch {
		case f.id == id:
		case filepath.Base(f.path) == base:
			last = append(last, f)
		case f.size > 0 && follows(f):
			out = append(out, f)
		}
	}
	slices.SortFunc(out, order)
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
