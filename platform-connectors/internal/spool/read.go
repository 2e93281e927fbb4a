package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Entry is one durable record and its place.
type Entry struct {
	Index  uint64
	Record record.Record
}

// Reader is one of those who must be done with a record before it is released.
type Reader struct {
	spool *Spool
	name  string
	done  uint64
}

// Reader registers a reader, before the first release. It holds everything that
// is in the spool until it confirms.
func (s *Spool) Reader(name string) *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Reader{spool: s, name: name, done: s.released}
	s.readers = append(s.readers, r)
	return r
}

// Confirm records that the reader is done with everything up to the index and never needs
// it again. It releases what all readers are done with.
func (r *Reader) Confirm(index uint64) error {
	s := r.spool
	s.mu.Lock()
	r.done = max(r.done, min(index, s.committed))
	upTo := r.done
	for _, other := range s.readers {
		upTo = min(upTo, other.done)
	}
	s.mu.Unlock()
	return s.release(upTo)
}

// buffers are what Read reads into.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Read returns up to limit records after the given index, in order, and the
// index up to which the spool was read: at least that of the last record,
// further if damaged entries were passed.
func (s *Spool) Read(after uint64, limit int) (entries []Entry, upTo uint64, err error) {
	if s.crashLoop.Isolates() {
		return s.readIsolated(after, limit)
	}
	for upTo = after; len(entries) == 0; {
		before := upTo
		if entries, upTo, err = s.readSome(before, limit); err != nil {
			return nil, after, err
		}
		if len(entries) == 0 && upTo <= before {
			break
		}
	}
	return entries, upTo, nil
}

// readSome is one attempt of Read: without entries, what it read was damaged, or
// nothing is there.
func (s *Spool) readSome(after uint64, limit int) (entries []Entry, upTo uint64, err error) {
	if entries, upTo = s.recall(after, limit); len(entries) > 0 {
		return entries, upTo, nil
	}
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	found, from, err := s.copyOut(after, limit, buffer)
	if err != nil {
		return nil, after, err
	}
	// Appends go on while the entries are decoded.
	entries = make([]Entry, 0, len(found))
	for i, data := range found {
		if e, ok := s.decode(from+uint64(i)+1, data); ok {
			entries = append(entries, e)
		}
	}
	return entries, from + uint64(len(found)), nil
}

// recall returns the records after an index that are still in memory.
func (s *Spool) recall(after uint64, limit int) (entries []Entry, upTo uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	upTo = max(after, s.released)
	for upTo < s.committed && len(entries) < limit {
		r := s.live[upTo-s.released].record
		if r != nil && entries == nil {
			entries = make([]Entry, 0, min(uint64(limit), s.committed-upTo))
		}
		if r == nil {
			break
		}
		upTo++
		entries = append(entries, s.entry(upTo, *r))
	}
	return entries, upTo
}

// entry is a record at its place. One whose publisher counts nothing has the
// spool's order instead.
func (s *Spool) entry(index uint64, r record.Record) Entry {
	if r.SeqEpoch == "" {
		r.Seq, r.SeqEpoch = index, s.epoch
	}
	return Entry{index, r}
}

// copyOut reads entries behind from, which is after, or where the unreleased
// ones begin. It does not wait for a group that is being made durable. If the
// disk does not give back what it should, the log is repaired, and the next
// attempt finds what is left.
func (s *Spool) copyOut(after uint64, limit int, buffer *[]byte) (found [][]byte, from uint64, err error) {
	s.files.RLock()
	released, committed := s.Bounds()
	from = max(after, released)
	if from < committed {
		limit = int(min(uint64(limit), committed-from))
		found, *buffer, err = s.wal.read(from+1, limit, maxGroupBytes, *buffer)
	}
	s.files.RUnlock()
	if err == nil {
		return found, from, nil
	}
	s.io.Lock()
	defer s.io.Unlock()
	s.broken = true
	return nil, after, errors.Join(err, s.heal())
}

// decode reads one entry; what cannot be read is buried and passed.
func (s *Spool) decode(index uint64, data []byte) (Entry, bool) {
	if s.fatal(index) {
		return Entry{}, false
	}
	f, _, ok := decode(data)
	if !ok {
		s.buryRead(DeadDamaged, Damage{Index: index, Count: 1, Bytes: data})
		return Entry{}, false
	}
	if f.tombstone() {
		return Entry{}, false
	}
	r, err := decodeRecord(f)
	if err != nil {
		s.buryRead(DeadUndecodable, Damage{Index: index, Count: 1, Bytes: f.body})
		return Entry{}, false
	}
	return s.entry(index, r), true
}

// release forgets everything up to the index and gives the disk back by whole
// segments. The cursor is not synced: an old one after a power cut only makes
// the readers see records again.
func (s *Spool) release(upTo uint64) error {
	if err := s.moveCursor(upTo); err != nil {
		return err
	}
	s.files.RLock()
	stale := s.wal.stale(upTo)
	s.files.RUnlock()
	if stale == 0 {
		return nil
	}
	return s.truncate()
}

// moveCursor does not wait for the log, which may be syncing, nor does the log
// wait for it.
func (s *Spool) moveCursor(upTo uint64) error {
	s.cursor.Lock()
	defer s.cursor.Unlock()
	s.mu.Lock()
	if upTo <= s.released {
		s.mu.Unlock()
		return nil
	}
	for upTo > s.released {
		e := s.live[0]
		s.live[0] = entry{}
		s.live = s.live[1:]
		delete(s.ids, e.id)
		s.bytes -= e.size
		if e.record != nil {
			s.recentBytes -= e.size
		}
		s.released++
	}
	released := s.released
	s.o.Metrics.bytes.Set(float64(s.bytes))
	s.mu.Unlock()
	return s.writeReleased(released)
}

// truncate takes what is released from the disk.
func (s *Spool) truncate() error {
	s.io.Lock()
	defer s.io.Unlock()
	if s.broken {
		return nil // the next append heals the log, a later release truncates it
	}
	released, _ := s.Bounds()
	s.files.Lock()
	defer s.files.Unlock()
	if err := s.wal.truncateFront(released); err != nil {
		s.broken = true
		return fmt.Errorf("truncating the write-ahead log: %w", err)
	}
	return nil
}

// writeReleased writes the cursor over the one before, in place: all have the
// same length, so nothing of the folder changes that the next fsync of the log
// would have to wait for.
func (s *Spool) writeReleased(index uint64) error {
	f, err := os.OpenFile(filepath.Join(s.dir, releasedFile), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("opening the cursor of the write-ahead log: %w", err)
	}
	_, err = fmt.Fprintf(f, "%020d\n", index)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the cursor of the write-ahead log: %w", err)
	}
	return nil
}

// readReleased returns the cursor, 0 if there is none that can be read.
func (s *Spool) readReleased() uint64 {
	b, err := os.ReadFile(filepath.Join(s.dir, releasedFile))
	if err != nil {
		return 0
	}
	line, whole := strings.CutSuffix(string(b), "\n")
	index, err := strconv.ParseUint(line, 10, 64)
	if err != nil || !whole {
		return 0
	}
	return index
}
