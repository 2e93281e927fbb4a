package spool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/wal"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/durable"
)

// Bounds of one group.
const (
	maxGroup      = 1024
	maxGroupBytes = 8 << 20
)

// request is one Append that waits for its group.
type request struct {
	ctx    context.Context
	frames []frame
	bytes  int
	done   chan error
}

// Append makes the records durable, all or none, and returns when they are: the
// caller may acknowledge them. Records whose id and content are in the spool
// already are durable already and not added again. ErrFull, ErrNotDurable and
// ErrClosed say that nothing may be acknowledged; after a context's error the
// records may or may not be there.
func (s *Spool) Append(ctx context.Context, records []record.Record) error {
	r := &request{ctx: ctx, done: make(chan error, 1)}
	for _, rec := range records {
		f, err := newFrame(rec)
		if err != nil {
			return err
		}
		r.frames = append(r.frames, f)
		r.bytes += headerLen + len(f.body)
	}
	if len(r.frames) == 0 {
		return nil
	}
	if crashpoint.Sabotaged("platform-connectors/drop-fsync") {
		go s.appendLate(r)
		return nil
	}
	return s.submit(ctx, r)
}

func (s *Spool) submit(ctx context.Context, r *request) error {
	select {
	case <-s.stop:
		return ErrClosed
	default:
	}
	select {
	case s.requests <- r:
	case <-s.stop:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopped:
		// The loop ended; it answered what it had taken before.
		select {
		case err := <-r.done:
			return err
		default:
			return ErrClosed
		}
	}
}

// appendLate is the crash tests' sabotage: the caller was told that its records
// are durable while they are only in memory.
func (s *Spool) appendLate(r *request) {
	<-s.o.Clock.After(2 * time.Second)
	r.ctx = context.Background()
	if err := s.submit(r.ctx, r); err != nil {
		s.o.Log.Error("late append failed", "error", err)
	}
}

func newFrame(rec record.Record) (frame, error) {
	id, err := uuid.Parse(rec.ID)
	if err != nil || id == uuid.Nil {
		return frame{}, fmt.Errorf("spooling record %q: its id is not a UUID", rec.ID)
	}
	body, sum, err := encodeRecord(rec, id)
	if err != nil {
		return frame{}, err
	}
	return frame{id: id, digest: sum, accepted: rec.CreatedAt, body: body}, nil
}

func (s *Spool) commitLoop() {
	defer close(s.stopped)
	for {
		select {
		case r := <-s.requests:
			s.commit(s.gather(r))
		case <-s.stop:
			for {
				select {
				case r := <-s.requests:
					s.commit(s.gather(r))
				default:
					return
				}
			}
		}
	}
}

// gather takes what is waiting, without waiting for more: while one group is
// being synced, the next one forms by itself.
func (s *Spool) gather(first *request) []*request {
	group, bytes := []*request{first}, first.bytes
	for len(group) < maxGroup && bytes < maxGroupBytes {
		select {
		case r := <-s.requests:
			group, bytes = append(group, r), bytes+r.bytes
		default:
			return group
		}
	}
	return group
}

// commit writes a group, syncs it once and answers every request.
func (s *Spool) commit(group []*request) {
	s.io.Lock()
	defer s.io.Unlock()
	p := s.plan(group)
	err := s.write(p)
	if err == nil {
		s.accept(p)
	} else {
		s.o.Metrics.failures.Inc()
		s.o.Log.Error("making spool records durable failed", "records", len(p.frames), "error", err)
		err = fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	for _, r := range p.joined {
		r.done <- err
	}
}

// plan is a group with places in the log.
type plan struct {
	joined []*request
	frames []frame
	ids    map[uuid.UUID]digest
	bytes  int64
}

// plan gives each new record of the group its index, and answers the requests
// that cannot join: given up by their caller, or without room.
func (s *Spool) plan(group []*request) *plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &plan{ids: map[uuid.UUID]digest{}}
	for _, r := range group {
		if err := r.ctx.Err(); err != nil {
			r.done <- err
			continue
		}
		fresh, bytes := s.fresh(p, r)
		if s.bytes+p.bytes+bytes > s.o.MaxBytes {
			r.done <- fmt.Errorf("%w: %d of %d bytes used", ErrFull, s.bytes+p.bytes, s.o.MaxBytes)
			continue
		}
		for _, f := range fresh {
			f.index = s.committed + uint64(len(p.frames)) + 1
			p.frames = append(p.frames, f)
			p.ids[f.id] = f.digest
		}
		p.bytes += bytes
		p.joined = append(p.joined, r)
	}
	return p
}

// fresh returns the records of a request that are not in the spool.
func (s *Spool) fresh(p *plan, r *request) (fresh []frame, bytes int64) {
	mine := map[uuid.UUID]digest{}
	for _, f := range r.frames {
		known := false
		for _, ids := range []map[uuid.UUID]digest{s.ids, p.ids, mine} {
			d, ok := ids[f.id]
			known = known || (ok && d == f.digest)
		}
		if !known {
			mine[f.id] = f.digest
			fresh = append(fresh, f)
			bytes += int64(headerLen + len(f.body))
		}
	}
	return fresh, bytes
}

// write appends the frames and syncs them. After a failure nothing is known
// about the end of the log: it is cut back to what is durable before it is
// written again.
func (s *Spool) write(p *plan) error {
	if len(p.frames) == 0 {
		return nil
	}
	if s.broken {
		if err := s.heal(); err != nil {
			return err
		}
	}
	s.broken = true
	var batch wal.Batch
	rolled := false
	for _, f := range p.frames {
		data := f.encode()
		batch.Write(f.index, data)
		if s.tail += prefixLen(len(data)) + len(data); s.tail >= s.o.SegmentBytes {
			s.tail, rolled = 0, true
		}
	}
	if err := s.log.WriteBatch(&batch); err != nil {
		return fmt.Errorf("writing the spool: %w", err)
	}
	if err := s.sync(); err != nil {
		return fmt.Errorf("syncing the spool: %w", err)
	}
	if rolled {
		if err := durable.SyncDir(filepath.Join(s.dir, logDir)); err != nil {
			return err
		}
	}
	s.broken = false
	return nil
}

// accept makes a durable group visible to the readers.
func (s *Spool) accept(p *plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p.frames) == 0 {
		return
	}
	for _, f := range p.frames {
		s.remember(f, headerLen+len(f.body))
	}
	s.committed += uint64(len(p.frames))
	close(s.changed)
	s.changed = make(chan struct{})
	s.o.Metrics.groupSize.Observe(float64(len(p.frames)))
	s.o.Metrics.bytes.Set(float64(s.bytes))
}

// heal reopens the log after a failed write or read, repairs it and cuts it
// back to the last entry that is known to be durable.
func (s *Spool) heal() error {
	if err := s.log.Close(); err != nil && !errors.Is(err, wal.ErrClosed) {
		s.o.Log.Warn("closing the spool after a failure failed", "error", err)
	}
	damage, err := repair(filepath.Join(s.dir, logDir), func(frame, int) {})
	if err != nil {
		return err
	}
	if err := s.openLog(); err != nil {
		return err
	}
	_, last, err := s.bounds()
	if err != nil {
		return err
	}
	s.mu.Lock()
	committed := s.committed
	s.mu.Unlock()
	if last < committed {
		return fmt.Errorf("healing the spool: it ends at entry %d, %d was durable", last, committed)
	}
	if err := s.log.TruncateBack(committed); err != nil {
		return fmt.Errorf("cutting the spool back to entry %d: %w", committed, err)
	}
	for _, d := range damage {
		if d.Index <= committed {
			s.bury(DeadDamaged, d)
		}
	}
	if err := s.measureTail(); err != nil {
		return err
	}
	s.broken = false
	return nil
}
