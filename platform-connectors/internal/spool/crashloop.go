package spool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/durable"
)

const (
	// livesFile is beside the log: how the lives of the process before this one
	// ended, and what they died of.
	livesFile = "lives.json"
	// flightFile holds what is in flight now, as "<start> <index>", always as long:
	// it is written in place, which costs one sync.
	flightFile = "in-flight"
	// carefulBatch bounds what a read brings in a careful life: each entry costs a
	// durable note.
	carefulBatch = 32

	flightFormat = "%010d %020d\n"
	flightLen    = 10 + 1 + 20 + 1
)

// Fatal is an entry that killed the process each time it was tried alone. It is
// passed over, and a dead letter.
type Fatal struct {
	Index uint64 `json:"index"`
	// ID is that of the event.
	ID string `json:"id"`
	// Told says that people were told of it elsewhere, too.
	Told bool `json:"told,omitempty"`
}

// account is the content of livesFile.
type account struct {
	Epoch string       `json:"epoch"`
	Past  consume.Past `json:"past"`
	// Fatal are those entries that are not released yet, or not told of.
	Fatal []Fatal `json:"fatal,omitempty"`
}

// crashLoop finds the entry that kills the process, as consume.Vetting does for the
// services of the control plane: after early deaths in a row each entry is noted
// durably and tried alone before a reader gets it.
type crashLoop struct {
	careful atomic.Bool
	ended   chan struct{} // closed by Close

	trial sync.Mutex // held while an entry is tried; guards the fields below
	tried map[uint64]bool
	took  time.Duration // the last note
	tries []func(record.Record)
	file  *os.File // flightFile, in a careful life

	mu sync.Mutex // guards what follows, and livesFile; taken alone, or last
	account
}

// Try registers what readers compute of one record, without any effect and without
// waiting for anybody. It is called before the first Read.
func (s *Spool) Try(try func(record.Record)) { s.crashLoop.tries = append(s.crashLoop.tries, try) }

// beginLife reads how the lives before this one ended, sets an entry aside that is
// proven fatal, and counts this start. What cannot be kept is done without.
func (s *Spool) beginLife() {
	v := &s.crashLoop
	v.ended, v.tried = make(chan struct{}), map[uint64]bool{}
	v.account = s.readLives()
	v.Past.InFlight = s.readFlight(v.Past.Starts)
	past, fatal := v.Past.Next()
	v.Fatal = slices.DeleteFunc(v.Fatal, func(f Fatal) bool { return f.Told && f.Index <= s.released })
	if index, err := strconv.ParseUint(fatal.Record, 10, 64); err == nil {
		s.setAside(index)
	}
	if err := s.keepLife(past); err != nil {
		s.o.Log.Warn("this start of the spool is not counted", "error", err)
		return
	}
	if past.Careful() {
		var err error
		if v.file, err = os.OpenFile(filepath.Join(s.dir, flightFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640); err != nil {
			s.o.Log.Warn("what is in flight cannot be noted", "error", err)
			return
		}
		v.careful.Store(true)
		s.o.Log.Warn("the process died early again and again: each event of the spool is tried alone before it goes on",
			"deaths", past.Starts-1, "suspect", past.Suspect.Record, "for", consume.CalmAfter)
	}
	go func() {
		select {
		case <-s.o.Clock.After(consume.CalmAfter):
			s.endLife()
		case <-v.ended:
		}
	}()
}

// endLife ends the account: by a stop, or because the process has lived for long
// enough.
func (s *Spool) endLife() {
	s.crashLoop.careful.Store(false)
	if err := s.keepLife(consume.Past{}); err != nil {
		s.o.Log.Warn("the end of this life of the spool is not written down, a start may be careful for nothing", "error", err)
	}
}

func (v *crashLoop) close() error {
	if v.file == nil {
		return nil
	}
	return v.file.Close()
}

// readLives is the account, or a new one for what cannot be read or is of another
// log.
func (s *Spool) readLives() account {
	var a account
	b, err := os.ReadFile(filepath.Join(s.dir, livesFile))
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil && !os.IsNotExist(err) {
		s.o.Log.Warn("what the process died of before is not known", "error", err)
	}
	if err != nil || a.Epoch != s.epoch {
		return account{Epoch: s.epoch}
	}
	return a
}

// readFlight is what was in flight when a life ended, by the number of its start.
func (s *Spool) readFlight(starts int) consume.Flight {
	b, err := os.ReadFile(filepath.Join(s.dir, flightFile))
	var of int
	var index uint64
	if err != nil || len(b) != flightLen {
		return consume.Flight{}
	}
	if _, err := fmt.Sscanf(string(b), flightFormat, &of, &index); err != nil || of != starts || index == 0 {
		return consume.Flight{}
	}
	return consume.Flight{Record: strconv.FormatUint(index, 10)}
}

// keepLife makes the account with another past durable.
func (s *Spool) keepLife(past consume.Past) error {
	v := &s.crashLoop
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Past == past && past == (consume.Past{}) {
		return nil
	}
	next := v.account
	next.Past = past
	return s.writeLives(next)
}

// writeLives makes an account durable, and the present one. The caller holds mu.
func (s *Spool) writeLives(a account) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encoding the spool's lives: %w", err)
	}
	if err := durable.Replace(filepath.Join(s.dir, livesFile), append(b, '\n'), 0o640); err != nil {
		return fmt.Errorf("writing the spool's lives: %w", err)
	}
	s.crashLoop.account = a
	return nil
}

// setAside buries an entry; the spool is being opened.
func (s *Spool) setAside(index uint64) {
	if index <= s.released || index > s.committed {
		return
	}
	found, _, err := s.wal.read(index, 1, maxGroupBytes, nil)
	if err != nil {
		s.o.Log.Error("setting aside a spool entry that killed the process failed, the next start tries again", "index", index, "error", err)
		return
	}
	f, _, ok := decode(found[0])
	if !ok || f.id == uuid.Nil {
		return
	}
	s.bury(DeadFatal, Damage{Index: index, Count: 1, Bytes: f.body})
	s.o.Log.Error("an event killed the process each time it was looked at, alone: it is a dead letter now and passed over",
		"index", index, "event", f.id, "deaths", consume.FatalDeaths)
	s.crashLoop.Fatal = append(s.crashLoop.Fatal, Fatal{Index: index, ID: f.id.String()})
}

// fatal says whether an entry is passed over.
func (s *Spool) fatal(index uint64) bool {
	v := &s.crashLoop
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.Fatal, func(f Fatal) bool { return f.Index == index })
}

// Untold are the entries that killed the process of which nobody was told yet,
// besides the log and the dead letters beside it.
func (s *Spool) Untold() []Fatal {
	v := &s.crashLoop
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.Fatal), func(f Fatal) bool { return f.Told })
}

// Told notes that people know of an entry that killed the process.
func (s *Spool) Told(index uint64) error {
	v := &s.crashLoop
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.account
	next.Fatal = slices.Clone(v.Fatal)
	for i := range next.Fatal {
		next.Fatal[i].Told = next.Fatal[i].Told || next.Fatal[i].Index == index
	}
	return s.writeLives(next)
}

// readCarefully is Read in a careful life: it tries each entry that no reader got
// in this life.
func (s *Spool) readCarefully(after uint64, limit int) (entries []Entry, upTo uint64, err error) {
	v := &s.crashLoop
	v.trial.Lock()
	defer v.trial.Unlock()
	entries, upTo, err = s.tryEach(after, min(limit, carefulBatch))
	// Not deferred: a panic would note that nothing is in flight.
	if noted := s.note(0); err == nil && len(entries) == 0 {
		err = noted
	}
	return entries, upTo, err
}

// tryEach reads entries one by one, each tried; the caller holds trial.
func (s *Spool) tryEach(after uint64, limit int) (entries []Entry, upTo uint64, err error) {
	for upTo = after; len(entries) < limit; {
		released, committed := s.Bounds()
		next := max(upTo, released) + 1
		if next > committed {
			break
		}
		if err := s.announce(next); err != nil {
			return entries, upTo, err
		}
		found, at, err := s.readSome(next-1, 1)
		if err != nil {
			return entries, upTo, err
		}
		for _, e := range found {
			s.try(e)
		}
		entries, upTo = append(entries, found...), max(at, next)
	}
	return entries, upTo, nil
}

// announce notes an entry that is tried now. One that was in flight at the last
// death comes at another time of each life (see consume.Past).
func (s *Spool) announce(index uint64) error {
	v := &s.crashLoop
	if v.tried[index] {
		return nil
	}
	v.mu.Lock()
	pause := v.Past.Pause(strconv.FormatUint(index, 10), v.took)
	v.mu.Unlock()
	if pause > 0 {
		if err := s.note(0); err != nil {
			return err
		}
		select {
		case <-s.o.Clock.After(pause):
		case <-v.ended:
			return ErrClosed
		}
	}
	return s.note(index)
}

// try computes what readers compute of an entry, once in this life.
func (s *Spool) try(e Entry) {
	v := &s.crashLoop
	if v.tried[e.Index] {
		return
	}
	for _, try := range v.tries {
		try(e.Record)
	}
	v.tried[e.Index] = true
}

// note writes down which entry is in flight; 0 is none.
func (s *Spool) note(index uint64) error {
	v := &s.crashLoop
	v.mu.Lock()
	past := v.Past
	v.mu.Unlock()
	flight := consume.Flight{}
	if index > 0 {
		flight.Record = strconv.FormatUint(index, 10)
	}
	if !v.careful.Load() || past.InFlight == flight {
		return nil
	}
	began := s.o.Clock.Now()
	_, err := v.file.WriteAt(fmt.Appendf(nil, flightFormat, past.Starts, index), 0)
	if err == nil {
		err = durable.SyncData(v.file)
	}
	if err != nil {
		return fmt.Errorf("noting what is in flight: %w", err)
	}
	v.took = s.o.Clock.Since(began)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Past.InFlight = flight
	return nil
}
