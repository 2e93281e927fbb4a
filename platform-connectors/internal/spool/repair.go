package spool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/platform-connectors/internal/durable"
)

// Damage is a stretch of the log that could not be read back.
type Damage struct {
	// Index and Count are the entries that were lost there; Count is 0 for the
	// torn tail of a write that was never acknowledged.
	Index uint64
	Count uint64
	// Bytes are what was found in their place.
	Bytes []byte
}

// repair makes the log in dir readable before it is opened: the library refuses
// a log whose last write was torn, takes a tail of zeros for empty entries and
// has no checksums. A torn tail is cut off. A damaged stretch with undamaged
// entries behind it becomes tombstones, so that nothing behind it is lost and
// every entry keeps its index. See is called with every entry in order, also the
// tombstones, and its size; its body is only valid during the call.
func repair(dir string, see func(f frame, size int)) ([]Damage, error) {
	if err := settle(dir); err != nil {
		return nil, err
	}
	segments, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	var all []Damage
	for i, s := range segments {
		data, err := os.ReadFile(s.path)
		if err != nil {
			return nil, fmt.Errorf("reading a spool segment: %w", err)
		}
		c := &checker{data: data, next: s.first, see: see}
		if i+1 < len(segments) {
			c.end = segments[i+1].first
		}
		c.check()
		if !c.mended {
			continue
		}
		if err := durable.Replace(s.path, c.good); err != nil {
			return nil, fmt.Errorf("repairing a spool segment: %w", err)
		}
		all = append(all, c.damage...)
	}
	return all, nil
}

// checker walks through one segment.
type checker struct {
	data []byte
	next uint64 // index the next entry must have
	end  uint64 // index at which the next segment begins; 0 in the last one
	see  func(f frame, size int)

	good   []byte // the segment without its damage
	mended bool   // good differs from data
	damage []Damage
}

func (c *checker) check() {
	at := 0
	for at < len(c.data) || c.next < c.end {
		if f, size, ok := entryAt(c.data[at:]); ok && f.index == c.next && c.belongs(f.index) {
			c.keep(f)
			at += size
			continue
		}
		at += c.skip(at)
	}
}

// keep takes an undamaged entry, or a tombstone, over into the good segment.
func (c *checker) keep(f frame) {
	c.good = appendEntry(c.good, f.encode())
	c.next++
	c.see(f, headerLen+len(f.body))
}

func (c *checker) belongs(index uint64) bool { return c.end == 0 || index < c.end }

// skip passes the damage at the given place and returns its length: up to the
// next undamaged frame, which is kept, or to the end of the segment.
func (c *checker) skip(at int) int {
	next, found := c.search(at)
	until := max(c.end, c.next)
	if found {
		until = next.frame.index
	}
	damage := Damage{c.next, until - c.next, bytes.Clone(c.data[at:next.start])}
	c.mended = true
	if damage.Count > 0 || !found {
		c.damage = append(c.damage, damage)
	}
	for c.next < until {
		c.keep(frame{index: c.next})
	}
	if found {
		c.keep(next.frame)
	}
	return next.end - at
}

// hit is an undamaged frame and its place in the segment.
type hit struct {
	frame      frame
	start, end int
}

// search finds the first undamaged frame after the given place; the length
// before it need not be undamaged. Without one, the hit is the segment's end.
func (c *checker) search(at int) (hit, bool) {
	for from := at; from < len(c.data); {
		found := bytes.Index(c.data[from:], magic)
		if found < 0 {
			break
		}
		from += found
		if f, size, ok := decode(c.data[from:]); ok && f.index >= c.next && c.belongs(f.index) {
			return hit{f, max(at, from-prefixLen(size)), from + size}, true
		}
		from++
	}
	return hit{start: len(c.data), end: len(c.data)}, false
}

// entryAt reads one entry as the log stores it: a varint length and the frame.
func entryAt(b []byte) (f frame, size int, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || uint64(len(b)-n) < length {
		return frame{}, 0, false
	}
	f, got, ok := decode(b[n : n+int(length)])
	return f, n + int(length), ok && got == int(length)
}

func appendEntry(b, frame []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(frame))), frame...)
}

// prefixLen is the size of the varint before a frame.
func prefixLen(frame int) int { return len(binary.AppendUvarint(nil, uint64(frame))) }

// segment is one file of the log, named by its first index.
type segment struct {
	first uint64
	path  string
}

const segmentDigits = 20

func listSegments(dir string) ([]segment, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the spool: %w", err)
	}
	var out []segment
	for _, f := range files {
		first, err := strconv.ParseUint(f.Name(), 10, 64)
		if err == nil && first > 0 && len(f.Name()) == segmentDigits {
			out = append(out, segment{first, filepath.Join(dir, f.Name())})
		}
	}
	return out, nil
}

// settle finishes a truncation that a crash interrupted, as the log itself
// would: it wrote the segment to keep beside the others, then removed those,
// then renamed it.
func settle(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing the spool: %w", err)
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, f.Name())
	}
	for _, name := range names {
		base, kind, _ := strings.Cut(name, ".")
		if strings.HasSuffix(kind, "TEMP") {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("removing an unfinished spool segment: %w", err)
			}
			continue
		}
		others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return len(n) != segmentDigits })
		switch kind {
		case "START": // everything before it goes; its own number may exist twice
			others = slices.DeleteFunc(others, func(n string) bool { return n > base })
		case "END":
			others = slices.DeleteFunc(others, func(n string) bool { return n < base })
		default:
			continue
		}
		for _, other := range others {
			if err := os.Remove(filepath.Join(dir, other)); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("finishing a truncation of the spool: %w", err)
			}
		}
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, base)); err != nil {
			return fmt.Errorf("finishing a truncation of the spool: %w", err)
		}
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
