package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Bounds of one group.
const (
	maxGroup      = 1024
	maxGroupBytes = 8 << 20
	// recent and recentBytes are how many records, of how many bytes on the disk,
	// are also kept in memory, so that readers that keep up need not decode them.
	recent      = 2048
	recentBytes = 16 << 20
	// keepBuffer bounds the memory that is kept from one group to the next.
	keepBuffer = 1 << 20
)

// request is one Append that waits for its group.
type request struct {
	ctx    context.Context
	frames []frame
	bytes  int
	done   chan error
}

// Append makes the records durable, all or none, and returns when they are: the caller may
// acknowledge them. Records whose id and content are in the spool already are durable
// already and not added again. ErrFull, ErrNotDurable and ErrClosed mean that nothing may
// be acknowledged; after a context's error the records may or may not be there.
func (s *Spool) Append(ctx context.Context, records []record.Record) error {
	r := &request{ctx: ctx, done: make(chan error, 1)}
	for _, rec := range records {
		f, err := newFrame(rec)
		if err != nil {
			return err
		}
		r.frames = append(r.frames, f)
		r.bytes += f.size()
	}
	if len(r.frames) == 0 {
		return nil
	}
	return s.submit(ctx, r)
}

// submit waits until the group that the request joins is durable. A caller that finds no
// group under way makes its own durable at once; requests that come meanwhile form the next
// one.
func (s *Spool) submit(ctx context.Context, r *request) error {
	s.turn.Lock()
	if s.closed {
		s.turn.Unlock()
		return ErrClosed
	}
	s.waiting = append(s.waiting, r)
	lead := !s.busy
	s.busy = true
	s.turn.Unlock()
	if lead && s.commitGroup() {
		go s.commitAll()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newFrame(rec record.Record) (frame, error) {
	id, err := uuid.Parse(rec.ID)
	if err != nil || id == uuid.Nil {
		return frame{}, fmt.Errorf("appending record %q to the write-ahead log: its id is not a UUID", rec.ID)
	}
	body, sum, err := encodeRecord(rec, id)
	if err != nil {
		return frame{}, err
	}
	f := frame{id: id, digest: sum, accepted: rec.CreatedAt, body: body}
	if !isJSON(body) {
		rec.CreatedAt = rec.CreatedAt.Round(0) // as it is read back: without the monotonic time
		f.record = &rec
	}
	return f, nil
}

// commitAll makes groups durable until nobody waits.
func (s *Spool) commitAll() {
	for more := true; more; {
		runtime.Gosched() // those who were just answered may come again: a larger group
		more = s.commitGroup()
	}
}

// commitGroup makes what is waiting durable, without waiting for more: meanwhile
// the next group forms by itself. It reports whether there is one.
func (s *Spool) commitGroup() (more bool) {
	s.turn.Lock()
	n, bytes := 0, 0
	for n < len(s.waiting) && n < maxGroup && bytes < maxGroupBytes {
		bytes += s.waiting[n].bytes
		n++
	}
	group := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	s.turn.Unlock()
	s.commit(group)
	s.turn.Lock()
	defer s.turn.Unlock()
	s.busy = len(s.waiting) > 0
	if !s.busy {
		s.waiting = nil
		s.calm.Broadcast()
	}
	return s.busy
}

// commit writes a group, syncs it once and answers every request.
func (s *Spool) commit(group []*request) {
	s.io.Lock()
	defer s.io.Unlock()
	b := s.number(group)
	err := s.write(b)
	if err == nil {
		s.accept(b)
	} else {
		s.o.Metrics.failures.Inc()
		s.o.Log.Error("write-ahead log sync failed", "records", len(b.frames), "error", err)
		err = fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	for _, r := range b.joined {
		r.done <- err
	}
}

// batch is a group with places in the log.
type batch struct {
	joined []*request
	frames []frame
	ids    map[uuid.UUID]digest
	bytes  int64
}

// number gives each new record of the group its index, and answers the requests that cannot
// join: their caller gave up, or there is no space.
func (s *Spool) number(group []*request) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &batch{ids: map[uuid.UUID]digest{}}
	for _, r := range group {
		if err := r.ctx.Err(); err != nil {
			r.done <- err
			continue
		}
		fresh, bytes := s.fresh(b, r)
		if s.bytes+b.bytes+bytes > s.o.MaxBytes {
			r.done <- fmt.Errorf("%w: %d of %d bytes used", ErrFull, s.bytes+b.bytes, s.o.MaxBytes)
			continue
		}
		for _, f := range fresh {
			f.index = s.committed + uint64(len(b.frames)) + 1
			b.frames = append(b.frames, f)
			b.ids[f.id] = f.digest
		}
		b.bytes += bytes
		b.joined = append(b.joined, r)
	}
	return b
}

// fresh returns the records of a request that are not in the spool.
func (s *Spool) fresh(b *batch, r *request) (fresh []frame, bytes int64) {
	var mine map[uuid.UUID]digest // of a request that has several
	if len(r.frames) > 1 {
		mine = make(map[uuid.UUID]digest, len(r.frames))
	}
	for _, f := range r.frames {
		known := false
		for _, ids := range [...]map[uuid.UUID]digest{s.ids, b.ids, mine} {
			d, ok := ids[f.id]
			known = known || (ok && d == f.digest)
		}
		if known {
			continue
		}
		if mine != nil {
			mine[f.id] = f.digest
		}
		fresh = append(fresh, f)
		bytes += f.cost()
	}
	return fresh, bytes
}

// write appends the frames and syncs them. After a failure nothing is known
// about the end of the log: it is cut back to what is durable before it is
// written again.
func (s *Spool) write(b *batch) error {
	if len(b.frames) == 0 {
		return nil
	}
	if s.broken {
		if err := s.heal(); err != nil {
			return err
		}
	}
	s.broken = true
	s.buffer = s.buffer[:0]
	at, ends := s.wal.last().size(), make([]uint32, 0, len(b.frames))
	for _, f := range b.frames {
		s.buffer = appendEntry(s.buffer, f)
		end := at + int64(len(s.buffer))
		if ends = append(ends, uint32(end)); end < s.wal.full {
			continue
		}
		if err := s.roll(ends); err != nil {
			return err
		}
		s.buffer, at, ends = s.buffer[:0], 0, ends[:0]
	}
	if err := s.flush(ends); err != nil {
		return err
	}
	s.broken = false
	return nil
}

// roll makes the entries in the buffer durable and begins the next segment.
func (s *Spool) roll(ends []uint32) error {
	if err := s.flush(ends); err != nil {
		return err
	}
	s.files.Lock()
	defer s.files.Unlock()
	return s.wal.seal()
}

// flush makes the entries in the buffer durable, which end at the given places
// of the last segment.
func (s *Spool) flush(ends []uint32) error {
	if len(ends) == 0 {
		return nil
	}
	if err := s.wal.append(s.buffer); err != nil {
		return err
	}
	if err := s.sync(s.wal.tail); err != nil {
		return fmt.Errorf("syncing the write-ahead log: %w", err)
	}
	s.files.Lock()
	defer s.files.Unlock()
	last := s.wal.last()
	last.ends = append(last.ends, ends...)
	if cap(s.buffer) > keepBuffer {
		s.buffer = nil
	}
	return nil
}

// accept makes a durable group visible to the readers.
func (s *Spool) accept(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b.frames) == 0 {
		return
	}
	for _, f := range b.frames {
		s.remember(f)
		s.forgetOld()
	}
	s.committed += uint64(len(b.frames))
	close(s.changed)
	s.changed = make(chan struct{})
	s.o.Metrics.groupSize.Observe(float64(len(b.frames)))
	s.o.Metrics.bytes.Set(float64(s.bytes))
}

// forgetOld drops the oldest records from memory when there are too many.
func (s *Spool) forgetOld() {
	last := s.released + uint64(len(s.live))
	s.recentFrom = max(s.recentFrom, s.released+1)
	for s.recentFrom <= last && (last-s.recentFrom >= recent || s.recentBytes > recentBytes) {
		e := &s.live[s.recentFrom-s.released-1]
		if e.record != nil {
			e.record = nil
			s.recentBytes -= e.size
		}
		s.recentFrom++
	}
}

// heal opens the log again after a failed write or read, repairs it and cuts
// it back to the last entry that is known to be durable.
func (s *Spool) heal() error {
	s.files.Lock()
	defer s.files.Unlock()
	if err := s.wal.tail.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		s.o.Log.Warn("close of the failed write-ahead log failed", "error", err)
	}
	damage, err := s.openWAL(func(frame) {})
	if err != nil {
		return err
	}
	_, last := s.wal.bounds()
	_, committed := s.Bounds()
	if last < committed {
		// The disk has lost them; those that come next must not take their places.
		if err := s.wal.fillUp(committed); err != nil {
			return fmt.Errorf("repairing the write-ahead log, which ends at entry %d of %d: %w", last, committed, err)
		}
	}
	if err := s.wal.cutBack(committed); err != nil {
		return fmt.Errorf("truncating the write-ahead log to entry %d: %w", committed, err)
	}
	for _, d := range damage {
		if d.Index > committed {
			continue
		}
		if d.Count == 0 {
			d.Count = committed - last
		}
		s.bury(DeadDamaged, d)
	}
	s.broken = false
	return nil
}
