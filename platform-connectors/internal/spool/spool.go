// Package spool is the connector's durable memory between accepting an event
// and knowing it stored: a write-ahead log with one sync per group of waiting
// appends, bounded in bytes, read in order by several readers and released at
// the front when all of them are done.
package spool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/durable"
)

// ErrFull means the spool has no space for the records until the store takes some.
var ErrFull = errors.New("write-ahead log is full")

// ErrClosed means the spool is shutting down and took nothing.
var ErrClosed = errors.New("write-ahead log is closed")

// ErrNotDurable means the disk refused; nothing of the group is acknowledged.
var ErrNotDurable = errors.New("write-ahead log could not make the records durable")

// Options of a spool.
type Options struct {
	// Dir is the spool's folder; it is created if it does not exist.
	Dir string
	// MaxBytes bounds what is accepted and not released: its bytes on the disk and
	// what its entries take in memory.
	MaxBytes int64
	// SegmentBytes is the size of one file of the log, 4 MiB if 0.
	SegmentBytes int
	Clock        clock.Clock
	Log          *slog.Logger
	Metrics      *Metrics

	pread pread // of the log's files; nil reads them
}

// Spool is a durable queue of records. It is safe for concurrent use.
type Spool struct {
	o     Options
	dir   string
	epoch string
	lock  *os.File

	turn    sync.Mutex // guards the fields below; taken alone
	waiting []*request
	busy    bool // somebody is making a group durable
	closed  bool
	calm    *sync.Cond // busy has become false

	cursor sync.Mutex // guards the file of the cursor

	io     sync.Mutex // held by the writer of the log; guards the fields below
	broken bool       // the log must be repaired before the next write
	buffer []byte     // of one group
	sync   func(*os.File) error

	files sync.RWMutex // guards the log against readers; taken after io
	wal   *wal

	mu        sync.Mutex // guards the fields below; taken after all others
	live      []entry    // of released+1 .. committed
	ids       map[uuid.UUID]digest
	bytes     int64
	released  uint64
	committed uint64
	changed   chan struct{} // closed when committed grows
	readers   []*Reader
	buried    map[uint64]bool
	// recentFrom is the first entry whose record may be in memory, recentBytes the
	// size of those that are.
	recentFrom  uint64
	recentBytes int64

	crashLoop crashLoop
}

// entry is what is remembered of an unreleased record.
type entry struct {
	id       uuid.UUID
	size     int64 // its share of the bound
	accepted time.Time
	record   *record.Record // of a recent one; readers share it and change nothing in it
}

const (
	defaultSegment = 4 << 20
	logDir         = "log"
	epochFile      = "epoch"
	releasedFile   = "released"
	lockFile       = "lock"
)

// Open opens or creates the spool in its folder, repairs what a crash left
// behind and starts to take appends. Only one process can have it open.
func Open(o Options) (*Spool, error) {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegment
	}
	if o.pread == nil {
		o.pread = (*os.File).ReadAt
	}
	s := &Spool{
		o: o, dir: o.Dir, sync: durable.SyncData, changed: make(chan struct{}),
		ids: map[uuid.UUID]digest{}, buried: map[uint64]bool{},
	}
	s.calm = sync.NewCond(&s.turn)
	if err := os.MkdirAll(filepath.Join(s.dir, logDir), 0o750); err != nil {
		return nil, fmt.Errorf("creating the write-ahead log: %w", err)
	}
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	s.beginCrashLoop()
	o.Metrics.bytes.Set(float64(s.bytes))
	o.Metrics.watch(s)
	return s, nil
}

func (s *Spool) takeLock() error {
	f, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return fmt.Errorf("opening the lock of the write-ahead log: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("locking the write-ahead log in %s, stop any other connector that uses it: %w", s.dir, err), f.Close())
	}
	s.lock = f
	return nil
}

// load repairs and reads the log, and finds out what was released.
func (s *Spool) load() error {
	cursor := s.readReleased()
	segments, err := listSegments(filepath.Join(s.dir, logDir))
	if err != nil {
		return err
	}
	damage, err := s.openWAL(func(f frame) {
		if f.index > cursor {
			s.remember(f)
		}
	})
	if err != nil {
		return err
	}
	first, last := s.wal.bounds()
	// An index that was given and is gone would be given again, so the counter
	// could fall: a new epoch begins.
	if err := s.loadEpoch(len(segments) == 0 || cursor > last || lostEnd(damage)); err != nil {
		return err
	}
	s.committed = last
	s.released = min(max(cursor, first-1), last)
	for _, d := range damage {
		s.bury(DeadDamaged, d)
	}
	return nil
}

// openWAL repairs the log and opens it.
func (s *Spool) openWAL(see func(frame)) ([]Damage, error) {
	path := filepath.Join(s.dir, logDir)
	segments, damage, err := repair(path, s.o.pread, see)
	if err != nil {
		return nil, err
	}
	j, err := openWAL(path, int64(s.o.SegmentBytes), segments, s.o.pread)
	if err == nil {
		s.wal = j
	}
	return damage, err
}

// lostEnd reports whether the end of the log, as the disk gives it back, may have had
// durable entries behind it.
func lostEnd(damage []Damage) bool {
	return slices.ContainsFunc(damage, func(d Damage) bool { return d.Count == 0 && d.Lost })
}

// remember counts an unreleased entry.
func (s *Spool) remember(f frame) {
	size := f.cost()
	s.live = append(s.live, entry{f.id, size, f.accepted, f.record})
	s.bytes += size
	if f.record != nil {
		s.recentBytes += size
	}
	if !f.tombstone() {
		s.ids[f.id] = f.digest
	}
}

// loadEpoch reads the epoch's id, or begins a new epoch.
func (s *Spool) loadEpoch(begin bool) error {
	path := filepath.Join(s.dir, epochFile)
	b, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(b)); err == nil && !begin && uuid.Validate(id) == nil {
		s.epoch = id
		return nil
	}
	if err != nil && !os.IsNotExist(err) && !durable.Unreadable(err) {
		return fmt.Errorf("reading the epoch of the write-ahead log: %w", err)
	}
	s.epoch = uuid.NewString()
	if err := durable.Replace(path, []byte(s.epoch+"\n"), 0o640); err != nil {
		return fmt.Errorf("writing the epoch of the write-ahead log: %w", err)
	}
	return nil
}

// Epoch is the id under which the spool's indexes count. They never fall within
// one epoch; a spool whose log was lost has another.
func (s *Spool) Epoch() string { return s.epoch }

// Bounds returns the last released and the last durable index.
func (s *Spool) Bounds() (released, committed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.released, s.committed
}

// Bytes is the size of what is accepted and not released.
func (s *Spool) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// MaxBytes is the bound of Bytes.
func (s *Spool) MaxBytes() int64 { return s.o.MaxBytes }

// Oldest is the age of the oldest unreleased record, 0 when there is none.
func (s *Spool) Oldest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.live {
		if !e.accepted.IsZero() && e.id != uuid.Nil {
			return s.o.Clock.Since(e.accepted)
		}
	}
	return 0
}

// Wait blocks until an entry after the given index is durable.
func (s *Spool) Wait(ctx context.Context, after uint64) error {
	for {
		s.mu.Lock()
		committed, changed := s.committed, s.changed
		s.mu.Unlock()
		if committed > after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// refuse takes no more appends and waits for those under way.
func (s *Spool) refuse() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.closed = true
	for s.busy {
		s.calm.Wait()
	}
}

// Close commits what was already handed in, refuses the rest and releases the
// folder.
func (s *Spool) Close() error {
	s.refuse()
	s.crashLoop.stop()
	s.io.Lock()
	defer s.io.Unlock()
	s.files.Lock()
	defer s.files.Unlock()
	if err := errors.Join(s.wal.close(), s.lock.Close()); err != nil {
		return fmt.Errorf("closing the write-ahead log: %w", err)
	}
	return nil
}

// digestOf shortens an event's content digest.
func digestOf(e record.Event) digest {
	var d digest
	copy(d[:], record.Digest(e)) // hexadecimal: 64 bits of it
	return d
}
