package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"github.com/nvidia/nvsentinel/internal/durable"
)

// ahead is how far a segment is filled with zeros before its entries. Entries
// are written over them, which changes neither the size nor the blocks of the
// file, so that syncing them does not wait for the file system's journal.
const ahead = 256 << 10

// zeros is what a segment is filled with; nobody writes into it.
var zeros [ahead]byte

// segment is one file of the log, named by the index of its first entry.
type segment struct {
	first uint64
	path  string
	// ends are the places where its entries end.
	ends []uint32
}

// size is how many bytes its entries have.
func (s *segment) size() int64 {
	if len(s.ends) == 0 {
		return 0
	}
	return int64(s.ends[len(s.ends)-1])
}

// next is the index behind its last entry.
func (s *segment) next() uint64 { return s.first + uint64(len(s.ends)) }

// wal is the files of the spool: segments of entries, one after the other,
// of which the last is written to. Behind its last entry that one has zeros or
// nothing. It is not safe for concurrent use, but for put beside read.
type wal struct {
	dir      string
	full     int64 // the size from which on a segment takes no more entries
	segments []*segment
	tail     *os.File // the last segment
	filled   int64    // bytes of the tail's file
	pread    pread
}

// openWAL opens the segments that repair has found.
func openWAL(dir string, full int64, segments []*segment, read pread) (*wal, error) {
	j := &wal{dir: dir, full: full, segments: segments, pread: read}
	if len(segments) == 0 {
		if err := j.begin(1); err != nil {
			return nil, err
		}
	} else if err := j.open(); err != nil {
		return nil, err
	}
	// A killed process may have left a group that it did not sync. From here on
	// its entries count as durable: who sends one again is answered at once.
	if err := durable.SyncData(j.tail); err != nil {
		return nil, errors.Join(err, j.tail.Close())
	}
	if err := durable.SyncDir(dir); err != nil {
		return nil, errors.Join(err, j.tail.Close())
	}
	return j, nil
}

// open opens the last segment.
func (w *wal) open() error {
	f, err := os.OpenFile(w.last().path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening a write-ahead log segment: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("reading the size of a write-ahead log segment: %w", err), f.Close())
	}
	w.tail, w.filled = f, info.Size()
	return nil
}

// begin makes an empty segment the last one. The folder is not synced.
func (w *wal) begin(first uint64) error {
	s := &segment{first: first, path: filepath.Join(w.dir, fmt.Sprintf("%0*d", segmentDigits, first))}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o640)
	if err != nil {
		return fmt.Errorf("creating a write-ahead log segment: %w", err)
	}
	if w.tail != nil {
		err = w.tail.Close()
	}
	w.segments, w.tail, w.filled = append(w.segments, s), f, 0
	return err
}

func (w *wal) last() *segment { return w.segments[len(w.segments)-1] }

// bounds are the indexes of the first and the last entry; last is first-1 when
// there is none.
func (w *wal) bounds() (first, last uint64) {
	return w.segments[0].first, w.last().next() - 1
}

// append writes entries that fit together behind those of the last segment,
// without syncing them.
func (w *wal) append(data []byte) error {
	at := w.last().size()
	if _, err := w.tail.WriteAt(data, at); err != nil {
		return fmt.Errorf("writing the write-ahead log: %w", err)
	}
	end := at + int64(len(data))
	if end <= w.filled {
		return nil
	}
	w.filled = end
	if more := min(ahead, w.full-end); more > 0 {
		// Without space for zeros the entries themselves are still written.
		if n, err := w.tail.WriteAt(zeros[:more], end); err == nil {
			w.filled += int64(n)
		}
	}
	return nil
}

// read returns the entries from an index on, in one piece of a segment and into
// the buffer given: at most limit, and no more than fit into most bytes but one.
func (w *wal) read(from uint64, limit int, most int64, buffer []byte) (frames [][]byte, _ []byte, err error) {
	i := sort.Search(len(w.segments), func(i int) bool { return w.segments[i].next() > from })
	if i == len(w.segments) || from < w.segments[i].first {
		return nil, buffer, fmt.Errorf("reading write-ahead log entry %d: not found", from)
	}
	s := w.segments[i]
	at := int(from - s.first)
	start := int64(0)
	if at > 0 {
		start = int64(s.ends[at-1])
	}
	ends := s.ends[at:min(at+limit, len(s.ends))]
	fit := sort.Search(len(ends), func(i int) bool { return int64(ends[i])-start > most })
	ends = ends[:max(fit, 1)]
	size := int64(ends[len(ends)-1]) - start
	if int64(cap(buffer)) < size {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	if err := w.pread.piece(s.path, buffer, start); err != nil {
		return nil, buffer, fmt.Errorf("reading write-ahead log entry %d: %w", from, err)
	}
	whole := buffer
	for _, end := range ends {
		entry := buffer[:int64(end)-start]
		buffer, start = buffer[len(entry):], int64(end)
		_, n := binary.Uvarint(entry)
		frames = append(frames, entry[max(n, 0):])
	}
	return frames, whole, nil
}

// seal lets the last segment end with its last entry and begins the next one,
// durably.
func (w *wal) seal() error {
	next := w.last().next()
	if err := w.trim(); err != nil {
		return err
	}
	if err := w.begin(next); err != nil {
		return err
	}
	return durable.SyncDir(w.dir)
}

// trim takes the zeros from the end of the last segment, and what else is
// behind its last entry.
func (w *wal) trim() error {
	size := w.last().size()
	if size == w.filled {
		return nil
	}
	err := w.tail.Truncate(size)
	if err == nil {
		err = w.tail.Sync()
	}
	if err != nil {
		return fmt.Errorf("truncating a write-ahead log segment: %w", err)
	}
	w.filled = size
	return nil
}

// cutBack removes the entries behind an index.
func (w *wal) cutBack(index uint64) error {
	for len(w.segments) > 1 && w.last().first > index+1 {
		if err := errors.Join(os.Remove(w.last().path), w.tail.Close()); err != nil {
			return fmt.Errorf("removing a write-ahead log segment: %w", err)
		}
		w.segments = w.segments[:len(w.segments)-1]
		if err := w.open(); err != nil {
			return err
		}
	}
	last := w.last()
	if last.first > index+1 {
		return fmt.Errorf("the write-ahead log begins at entry %d", last.first)
	}
	last.ends = last.ends[:index+1-last.first]
	w.filled = -1 // whatever is behind them goes
	if err := w.trim(); err != nil {
		return err
	}
	return durable.SyncDir(w.dir)
}

// fillUp puts tombstones behind the last entry, up to an index.
func (w *wal) fillUp(index uint64) error {
	w.filled = -1 // what is behind the last entry goes
	if err := w.trim(); err != nil {
		return err
	}
	var buffer []byte
	last, at := w.last(), w.last().size()
	ends := last.ends
	for next := last.next(); next <= index; next++ {
		buffer = appendEntry(buffer, frame{index: next})
		ends = append(ends, uint32(at+int64(len(buffer))))
	}
	if err := w.append(buffer); err != nil {
		return err
	}
	if err := durable.SyncData(w.tail); err != nil {
		return err
	}
	last.ends = ends
	return nil
}

// truncateFront removes the segments of which every entry is up to the index. The
// folder is not synced: a segment that comes back is below the cursor. When
// nothing is left in a last segment that has grown, the next one is begun.
func (w *wal) truncateFront(index uint64) error {
	if w.stale(index) == len(w.segments) {
		if err := w.seal(); err != nil {
			return err
		}
	}
	n := min(w.stale(index), len(w.segments)-1)
	for _, s := range w.segments[:n] {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a write-ahead log segment: %w", err)
		}
	}
	w.segments = append([]*segment(nil), w.segments[n:]...)
	return nil
}

// stale counts the segments that truncateFront can do without.
func (w *wal) stale(index uint64) int {
	n := 0
	for n < len(w.segments) && w.segments[n].next() <= index+1 {
		n++
	}
	if n == len(w.segments) && w.last().size() < w.full/4 {
		n-- // it can grow on
	}
	return n
}

// close leaves a file without zeros at its end.
func (w *wal) close() error { return errors.Join(w.trim(), w.tail.Close()) }
