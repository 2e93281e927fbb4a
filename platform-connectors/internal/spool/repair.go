package spool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/internal/durable"
)

// Damage is a stretch of the log that could not be read back.
type Damage struct {
	// Index and Count are the entries that were lost there; Count is 0 for the
	// torn tail of a write that was never acknowledged.
	Index uint64
	Count uint64
	// Bytes are what was found in their place.
	Bytes []byte
	// Lost: in the file are bytes that the disk did not give back.
	Lost bool
}

// repair makes the log in dir readable and lists its segments. A torn tail is
// cut off; zeros at the end are preallocated space and stay. A damaged
// stretch with undamaged entries behind it becomes tombstones, so that nothing
// behind it is lost and every entry keeps its index. See is called with every
// entry in order, also the tombstones; its body is only valid during the call.
//
// What the disk does not give back is damage as well.
//
// After a power cut the pages of a group that was not synced yet may be there or not, each
// for itself: then a damaged stretch may be entries that were never acknowledged as
// durable.
func repair(dir string, read pread, see func(f frame)) ([]*segment, []Damage, error) {
	segments, err := listSegments(dir)
	if err != nil {
		return nil, nil, err
	}
	var all []Damage
	for i, s := range segments {
		data, lost, err := read.file(s.path)
		if err != nil {
			return nil, nil, fmt.Errorf("reading a write-ahead log segment: %w", err)
		}
		c := &checker{data: data, next: s.first, see: see, lost: lost}
		if i+1 < len(segments) {
			c.end = segments[i+1].first
		}
		c.check()
		s.ends = c.ends
		if !c.damaged {
			continue
		}
		if err := durable.Replace(s.path, c.good, 0o640); err != nil {
			return nil, nil, fmt.Errorf("repairing a write-ahead log segment: %w", err)
		}
		all = append(all, c.damage...)
	}
	return segments, all, nil
}

// checker walks through one segment.
type checker struct {
	data []byte
	next uint64 // index the next entry must have
	end  uint64 // index at which the next segment begins; 0 in the last one
	see  func(f frame)
	lost bool // the disk did not give all of it back

	ends    []uint32 // of the entries
	good    []byte   // once repaired, the segment without its damage
	damaged bool     // the segment is damaged
	damage  []Damage
}

func (c *checker) check() {
	at := 0
	for at < len(c.data) || c.next < c.end {
		if f, size, ok := entryAt(c.data[at:]); ok && f.index == c.next && c.belongs(f.index) {
			c.keep(f)
			at += size
			continue
		}
		if c.next >= c.end && len(bytes.TrimLeft(c.data[at:], "\x00")) == 0 {
			return
		}
		if !c.damaged {
			c.damaged, c.good = true, bytes.Clone(c.data[:at])
		}
		at += c.skip(at)
	}
}

// keep takes an undamaged entry, or a tombstone, over into the good segment.
func (c *checker) keep(f frame) {
	if c.damaged {
		c.good = appendEntry(c.good, f)
	}
	end := uint32(prefixLen(f.size()) + f.size())
	if n := len(c.ends); n > 0 {
		end += c.ends[n-1]
	}
	c.ends = append(c.ends, end)
	c.next++
	c.see(f)
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
	damage := Damage{c.next, until - c.next, bytes.Clone(c.data[at:next.start]), c.lost}
	if damage.Count == 0 {
		damage.Bytes = bytes.TrimRight(damage.Bytes, "\x00") // preallocated space
	}
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

func appendEntry(b []byte, f frame) []byte {
	return f.append(binary.AppendUvarint(b, uint64(f.size())))
}

// prefixLen is the size of the varint before a frame.
func prefixLen(frame int) int { return len(binary.AppendUvarint(nil, uint64(frame))) }

const segmentDigits = 20

// listSegments lists the files of a log in the order of their entries.
func listSegments(dir string) ([]*segment, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the write-ahead log segments: %w", err)
	}
	var out []*segment
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		if strings.HasSuffix(path, ".TEMP") { // a repair that was interrupted
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("removing an unfinished write-ahead log segment: %w", err)
			}
			continue
		}
		first, err := strconv.ParseUint(f.Name(), 10, 64)
		if err == nil && first > 0 && len(f.Name()) == segmentDigits {
			out = append(out, &segment{first: first, path: path})
		}
	}
	return out, nil
}
