package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashloop"
	"github.com/nvidia/nvsentinel/internal/durable"
)

const (
	// crashStateFile is beside the log: how the processes before this one ended, what they
	// died of, and what is in flight now.
	crashStateFile    = "lives.json"
	crashStateVersion = 1
	// earlierFlightFile is where a connector of an earlier version noted what is in flight.
	earlierFlightFile = "in-flight"
	// isolatedBatch bounds what a read brings in isolation mode: each entry costs a
	// durable note.
	isolatedBatch = 32
)

// Fatal is an entry that killed the process each time it was tried alone. It is
// passed over, and a dead letter.
type Fatal struct {
	Index uint64 `json:"index"`
	// ID is that of the event.
	ID string `json:"id"`
	// Reported is true if the entry was also reported outside the log and the dead letters.
	Reported bool `json:"told,omitempty"`
}

// account is the content of crashStateFile.
type account struct {
	Version int            `json:"version"`
	Epoch   string         `json:"epoch"`
	Past    crashloop.Past `json:"past"`
	// Fatal are the entries that are not yet released, or not yet reported.
	Fatal []Fatal `json:"fatal,omitempty"`
}

// crashLoop finds the entry that kills the process: in isolation mode each entry is
// noted durably and tried alone before a reader gets it. It is the guard's memory, in
// a file beside the log.
type crashLoop struct {
	crashloop.Guard
	spool *Spool

	ctx   context.Context // ended by Close
	end   context.CancelFunc
	tries []func(record.Record)
	tried map[uint64]bool // while the guard is taken

	earlier bool // earlierFlightFile is there; guarded by mu once the spool is open

	mu sync.Mutex // guards what follows, and crashStateFile; taken alone, or last
	account
}

// Try registers what readers compute of one record, without any effect and without
// waiting for anybody. It is called before the first Read.
func (s *Spool) Try(try func(record.Record)) { s.crashLoop.tries = append(s.crashLoop.tries, try) }

// beginCrashLoop begins the account of this process.
func (s *Spool) beginCrashLoop() {
	v := &s.crashLoop
	v.spool, v.tried = s, map[uint64]bool{}
	v.ctx, v.end = context.WithCancel(context.Background())
	v.Begin(v.ctx, v, s.o.Clock, s.o.Log)
	go v.Stable(v.ctx)
}

// stop ends the account of this process.
func (v *crashLoop) stop() {
	v.end()
	v.End(context.Background())
}

// Load implements crashloop.Memory. What cannot be read, or is of another log, is a new
// account.
func (v *crashLoop) Load(context.Context) (crashloop.Past, error) {
	s := v.spool
	var a account
	_, err := durable.Load(filepath.Join(s.dir, crashStateFile), durable.Versions{Newest: crashStateVersion}, &a)
	if err != nil {
		s.o.Log.Warn("crash history unreadable, starting a new one", "error", err)
	}
	if err != nil || a.Epoch != s.epoch {
		a = account{Epoch: s.epoch}
	}
	a.Version = crashStateVersion
	if w, found := s.takeOverFlight(a.Past.Starts); found {
		a.Past.InFlight = w
	}
	a.Fatal = slices.DeleteFunc(a.Fatal, func(f Fatal) bool { return f.Reported && f.Index <= s.released })
	v.mu.Lock()
	defer v.mu.Unlock()
	v.account = a
	return a.Past, nil
}

// takeOverFlight reads what was in flight when a process of an earlier version ended, by
// the number of its start. The file stays until the account that follows from it is durable
// (write): from then on its start is not the last one.
func (s *Spool) takeOverFlight(starts int) (w crashloop.Work, found bool) {
	b, err := os.ReadFile(filepath.Join(s.dir, earlierFlightFile))
	if err != nil {
		return crashloop.Work{}, false
	}
	s.crashLoop.earlier = true
	var of int
	var index uint64
	if _, err := fmt.Sscanf(string(b), "%d %d\n", &of, &index); err != nil || of != starts || index == 0 {
		return crashloop.Work{}, false
	}
	return workOn(index), true
}

// workOn is an entry as a piece of work.
func workOn(index uint64) crashloop.Work {
	return crashloop.Work{Record: strconv.FormatUint(index, 10)}
}

// Save implements crashloop.Memory.
func (v *crashLoop) Save(_ context.Context, past crashloop.Past) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.account
	next.Past = past
	return v.write(next)
}

// write makes an account durable, and the present one. The caller holds mu.
func (v *crashLoop) write(a account) error {
	if _, err := durable.Save(filepath.Join(v.spool.dir, crashStateFile), a); err != nil {
		return err
	}
	v.account = a
	if v.earlier {
		if err := os.Remove(filepath.Join(v.spool.dir, earlierFlightFile)); err != nil {
			v.spool.o.Log.Warn("removal of a file of an earlier version failed", "error", err)
		}
		v.earlier = false
	}
	return nil
}

// MoveToDeadLetters implements crashloop.Memory: the entry becomes a dead letter. The spool is
// being opened.
func (v *crashLoop) MoveToDeadLetters(_ context.Context, w crashloop.Work) error {
	s := v.spool
	index, err := strconv.ParseUint(w.Record, 10, 64)
	if err != nil || index <= s.released || index > s.committed {
		return nil // there is no such entry any more
	}
	found, _, err := s.wal.read(index, 1, maxGroupBytes, nil)
	if err != nil {
		return err
	}
	f, _, ok := decode(found[0])
	if !ok || f.id == uuid.Nil {
		return nil
	}
	s.bury(DeadFatal, Damage{Index: index, Count: 1, Bytes: f.body})
	s.o.Log.Error("event dead-lettered: it killed the connector each time it was processed on its own", "index", index, "event", f.id)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Fatal = append(v.Fatal, Fatal{Index: index, ID: f.id.String()})
	return nil
}

// fatal reports whether an entry is passed over.
func (s *Spool) fatal(index uint64) bool {
	v := &s.crashLoop
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.Fatal, func(f Fatal) bool { return f.Index == index })
}

// Unreported returns the entries that killed the process and are reported nowhere yet but
// in the log and the dead letters beside it.
func (s *Spool) Unreported() []Fatal {
	v := &s.crashLoop
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.Fatal), func(f Fatal) bool { return f.Reported })
}

// MarkReported notes that people know of an entry that killed the process.
func (s *Spool) MarkReported(index uint64) error {
	v := &s.crashLoop
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.account
	next.Fatal = slices.Clone(v.Fatal)
	for i := range next.Fatal {
		next.Fatal[i].Reported = next.Fatal[i].Reported || next.Fatal[i].Index == index
	}
	return v.write(next)
}

// readIsolated is Read in isolation mode: it tries each entry that no reader got since
// the start.
func (s *Spool) readIsolated(after uint64, limit int) (entries []Entry, upTo uint64, err error) {
	v := &s.crashLoop
	v.Take()
	defer v.Give()
	entries, upTo, err = s.tryEach(after, min(limit, isolatedBatch))
	// Not deferred: a panic would note that nothing is in flight.
	if noted := v.Note(v.ctx, crashloop.Work{}); err == nil && len(entries) == 0 {
		err = noted
	}
	if v.ctx.Err() != nil && errors.Is(err, v.ctx.Err()) {
		err = ErrClosed
	}
	return entries, upTo, err
}

// tryEach reads entries one by one, each tried; the caller has taken the guard.
func (s *Spool) tryEach(after uint64, limit int) (entries []Entry, upTo uint64, err error) {
	v := &s.crashLoop
	for upTo = after; len(entries) < limit; {
		released, committed := s.Bounds()
		next := max(upTo, released) + 1
		if next > committed {
			break
		}
		if !v.tried[next] {
			if err := v.Announce(v.ctx, workOn(next)); err != nil {
				return entries, upTo, err
			}
		}
		found, at, err := s.readSome(next-1, 1)
		if err != nil {
			return entries, upTo, err
		}
		for _, e := range found {
			v.try(e)
		}
		entries, upTo = append(entries, found...), max(at, next)
	}
	return entries, upTo, nil
}

// try computes what readers compute of an entry, once since the start.
func (v *crashLoop) try(e Entry) {
	if v.tried[e.Index] {
		return
	}
	for _, try := range v.tries {
		try(e.Record)
	}
	v.tried[e.Index] = true
}
