package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/durable"
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

// Confirm says that the reader is done with everything up to the index and
// never needs it again. It releases what all readers are done with.
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

// Read returns up to limit records after the given index, in order, and the
// index up to which the spool was read: at least that of the last record,
// further if damaged entries were passed.
func (s *Spool) Read(after uint64, limit int) (entries []Entry, upTo uint64, err error) {
	for upTo = after; len(entries) == 0; {
		found, from, err := s.copyOut(upTo, limit)
		if err != nil {
			return nil, after, err
		}
		upTo = from + uint64(len(found))
		if len(found) == 0 {
			break
		}
		// Appends go on while the entries are decoded.
		entries = make([]Entry, 0, len(found))
		for i, data := range found {
			if e, ok := s.decode(from+uint64(i)+1, data); ok {
				entries = append(entries, e)
			}
		}
	}
	return entries, upTo, nil
}

// copyOut returns the entries of the log behind from, which is after, or where
// the unreleased ones begin. They stay as they are: durable entries are never
// written again, and a log that is cut or opened again has other memory.
func (s *Spool) copyOut(after uint64, limit int) (found [][]byte, from uint64, err error) {
	s.io.Lock()
	defer s.io.Unlock()
	if s.broken {
		if err := s.heal(); err != nil {
			return nil, after, err
		}
	}
	released, committed := s.Bounds()
	from = max(after, released)
	bytes := 0
	for at := from + 1; at <= committed && len(found) < limit && bytes < maxGroupBytes; at++ {
		data, err := s.raw(at)
		if err != nil {
			s.broken = true // the next attempt heals it
			return nil, after, err
		}
		found, bytes = append(found, data), bytes+len(data)
	}
	return found, from, nil
}

// raw reads one entry of the log. A segment that became shorter behind the
// log's back makes the library panic.
func (s *Spool) raw(index uint64) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading spool entry %d: %v", index, p)
		}
	}()
	if data, err = s.log.Read(index); err != nil {
		err = fmt.Errorf("reading spool entry %d: %w", index, err)
	}
	return data, err
}

// decode reads one entry; what cannot be read is buried and passed.
func (s *Spool) decode(index uint64, data []byte) (Entry, bool) {
	f, _, ok := decode(data)
	if !ok {
		s.buryRead(DeadDamaged, Damage{index, 1, data})
		return Entry{}, false
	}
	if f.tombstone() {
		return Entry{}, false
	}
	r, err := decodeRecord(f)
	if err != nil {
		s.buryRead(DeadUndecodable, Damage{index, 1, f.body})
		return Entry{}, false
	}
	e := Entry{index, r}
	if e.Record.SeqEpoch == "" {
		// The publisher counts nothing: the spool's order stands in.
		e.Record.Seq, e.Record.SeqEpoch = index, s.epoch
	}
	return e, true
}

// release forgets everything up to the index and gives the disk back once a
// segment's worth of it has gathered. The cursor is not synced: an old one
// after a power cut only makes the readers see records again.
func (s *Spool) release(upTo uint64) error {
	garbage, empty, err := s.moveCursor(upTo)
	if err != nil {
		return err
	}
	enough := int64(s.o.SegmentBytes)
	if empty {
		enough /= 4
	}
	if garbage < enough {
		return nil
	}
	return s.truncate()
}

// moveCursor does not wait for the log, which may be syncing, nor does the log
// wait for it.
func (s *Spool) moveCursor(upTo uint64) (garbage int64, empty bool, err error) {
	s.cursor.Lock()
	defer s.cursor.Unlock()
	s.mu.Lock()
	if upTo <= s.released {
		s.mu.Unlock()
		return 0, false, nil
	}
	for upTo > s.released {
		e := s.live[0]
		s.live = s.live[1:]
		delete(s.ids, e.id)
		s.bytes -= e.size
		s.garbage += e.size
		s.released++
	}
	released, garbage, empty := s.released, s.garbage, len(s.live) == 0
	s.o.Metrics.bytes.Set(float64(s.bytes))
	s.mu.Unlock()
	return garbage, empty, s.writeReleased(released)
}

// truncate takes what is released from the disk.
func (s *Spool) truncate() error {
	s.io.Lock()
	defer s.io.Unlock()
	if s.broken {
		return nil // the next append or read heals the log, the next release truncates it
	}
	s.mu.Lock()
	released, garbage := s.released, s.garbage
	s.mu.Unlock()
	if err := s.log.TruncateFront(released + 1); err != nil {
		s.broken = true
		return fmt.Errorf("truncating the spool: %w", err)
	}
	s.mu.Lock()
	s.garbage -= garbage // not what was released meanwhile
	s.mu.Unlock()
	if err := s.measureTail(); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Join(s.dir, logDir))
}

// writeReleased writes the cursor over the one before, in place: all have the
// same length, so nothing of the folder changes that the next fsync of the log
// would have to wait for.
func (s *Spool) writeReleased(index uint64) error {
	f, err := os.OpenFile(filepath.Join(s.dir, releasedFile), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("opening the spool's cursor: %w", err)
	}
	_, err = fmt.Fprintf(f, "%020d\n", index)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the spool's cursor: %w", err)
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
