// Package crashloop finds the poison record: the one that kills the process at every
// start. A process that crashed early again and again works in isolation mode: it does
// one thing at a time and notes durably what is in flight before. A record that is
// alone in flight at several crashes in a row becomes a dead letter, and the
// process goes on without it.
package crashloop

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/retry"
)

// Memory is where the past of a process is kept, by which one record is dead-lettered: a
// file, or the store. What it was given is durable when a call returns.
type Memory interface {
	// Load reads the past; a process without one has the zero value.
	Load(ctx context.Context) (Past, error)
	Save(ctx context.Context, p Past) error
	// MoveToDeadLetters keeps a record that killed the process as a dead letter; from now on
	// the process passes it over.
	MoveToDeadLetters(ctx context.Context, w Work) error
}

// memoryDeadline bounds a read or write of the memory at the start and the stop.
const memoryDeadline = 10 * time.Second

// Guard is the account of one process. It costs one write at the start and one when
// the process has run for StableAfter, or stops, and a write for each piece of work in
// isolation mode. The zero value remembers nothing and never isolates; Begin comes
// before everything else, and a guard must not be copied after it.
type Guard struct {
	// Process is shared by the guards of one process; nil is a process of this one.
	Process *Process

	memory Memory
	clock  clock.Clock
	log    *slog.Logger

	saving baton // held while the memory is written

	// isolates is read by scrapes, which must not wait for a write.
	isolates atomic.Bool

	mu             sync.Mutex
	past           Past
	began          time.Time
	handled        bool          // the suspect was handled since the start
	memoryReadable bool          // the memory could be read
	took           time.Duration // the last note
}

// Process is what the guards of one process share: among all that work in isolation mode
// one thing is in flight at a time, so that a crash blames what caused it and nothing else.
type Process struct{ alone baton }

// NewProcess is that of a process which starts.
func NewProcess() *Process { return &Process{alone: make(baton, 1)} }

// baton is a lock that is held while somebody else is waited for.
type baton chan struct{}

func (b baton) take() { b <- struct{}{} }
func (b baton) give() { <-b }

// Begin reads the past, dead-letters a poison record, and counts this start. Without
// its memory the process works as before.
func (g *Guard) Begin(ctx context.Context, m Memory, c clock.Clock, log *slog.Logger) {
	g.memory, g.clock, g.log = m, c, log
	g.began, g.saving = c.Now(), make(baton, 1)
	if g.Process == nil {
		g.Process = NewProcess()
	}
	ctx, cancel := context.WithTimeout(ctx, memoryDeadline)
	defer cancel()
	before, err := m.Load(ctx)
	if err != nil {
		log.Warn("crash history not read, continuing without crash-loop protection", "error", err)
		return
	}
	past, poison := before.Next()
	if poison != (Work{}) {
		if err := m.MoveToDeadLetters(ctx, poison); err != nil {
			log.Error("record not dead-lettered, retrying at the next start", "record", poison.Record, "error", err)
			past.Suspect, past.Crashes, past.KeyCrashes = poison, before.Crashes, before.KeyCrashes+1
		} else {
			log.Error("record dead-lettered and skipped, it crashed the process at each isolated attempt",
				"record", poison.Record, "key", poison.Key, "crashes", PoisonCrashes)
		}
	}
	if err := m.Save(ctx, past); err != nil {
		log.Warn("process start not counted", "error", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.past, g.memoryReadable = past, true
	g.isolates.Store(past.Isolates())
	if past.Isolates() {
		log.Warn("crash loop detected, isolation mode enabled: items are handled one at a time",
			"crashes", past.Starts-1, "suspect", past.Suspect.Key, "record", past.Suspect.Record, "for", StableAfter)
	}
}

// End ends the account: by a stop, or because the process has run for long enough.
func (g *Guard) End(ctx context.Context) {
	g.saving.take()
	defer g.saving.give()
	g.isolates.Store(false)
	if past, known := g.remembers(); !known || past == (Past{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, memoryDeadline)
	defer cancel()
	if err := g.memory.Save(ctx, Past{}); err != nil {
		g.log.Warn("end of isolation mode not recorded, the next start can enable isolation mode unnecessarily", "error", err)
		return
	}
	g.remember(Past{}, 0)
}

// Stable waits until the process has run for long enough and ends the account, or
// until ctx ends.
func (g *Guard) Stable(ctx context.Context) (yes bool) {
	select {
	case <-g.clock.After(StableAfter):
		g.End(ctx)
		return true
	case <-ctx.Done():
		return false
	}
}

// Isolates reports whether the process works in isolation mode now.
func (g *Guard) Isolates() bool { return g.isolates.Load() }

// Deep reports whether the reading of each delivery is noted, too.
func (g *Guard) Deep() bool {
	past, _ := g.remembers()
	return past.Deep
}

// remembers returns what the memory holds now, if it could be read.
func (g *Guard) remembers() (past Past, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.past, g.memoryReadable
}

// remember notes what the memory holds, and how long it took to write it.
func (g *Guard) remember(past Past, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.past, g.took = past, took
}

// Take begins a piece of work that is alone in flight, once nothing else is; Give ends it.
func (g *Guard) Take() { g.Process.alone.take() }

// Give ends what Take began.
func (g *Guard) Give() { g.Process.alone.give() }

// Note writes down what is in flight in isolation mode.
func (g *Guard) Note(ctx context.Context, w Work) error {
	if !g.Isolates() {
		return nil
	}
	g.saving.take()
	defer g.saving.give()
	past, _ := g.remembers()
	if !g.Isolates() || past.InFlight == w {
		return nil
	}
	began := g.clock.Now()
	past.InFlight = w
	if err := g.memory.Save(ctx, past); err != nil {
		return fmt.Errorf("recording the in-flight work: %w", err)
	}
	g.remember(past, g.clock.Since(began))
	return nil
}

// Announce has a record alone in flight, which is tried next. One that was in flight
// at the last crash, too, waits before, with its key alone noted.
func (g *Guard) Announce(ctx context.Context, w Work) error {
	g.mu.Lock()
	pause := g.past.pause(w.Record, g.took)
	g.mu.Unlock()
	if pause > 0 {
		if err := g.Note(ctx, Work{Key: w.Key}); err != nil {
			return err
		}
		if !retry.Sleep(ctx, g.clock, pause) {
			return ctx.Err()
		}
	}
	return g.Note(ctx, w)
}

// Turn returns how a key is handled now: in isolation mode or not, whether it is the
// suspect, and how long it has to wait for its turn.
func (g *Guard) Turn(key string) (isolates, suspect bool, rest time.Duration) {
	if !g.Isolates() {
		return false, false, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.Isolates() || g.handled || key != g.past.Suspect.Key {
		return g.Isolates(), false, 0
	}
	return true, true, g.past.backoff(key) - g.clock.Since(g.began)
}

// Survived notes that the suspect was handled since the start.
func (g *Guard) Survived() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handled = true
}

// How many crashes it takes.
const (
	// isolateAfter starts in a row that ended early make the next one work in isolation.
	isolateAfter = 2
	// PoisonCrashes in a row with one and the same record alone in flight have it
	// dead-lettered.
	PoisonCrashes = 3

	// StableAfter is how long a process runs until a crash has nothing to do
	// with its start; the kubelet forgets its back-off after as long.
	StableAfter = 10 * time.Minute
	// A key that was in flight at crashes waits after the next starts, twice as long
	// after each further crash, and never as long as it takes to be stable.
	minBackoff, maxBackoff = 2 * time.Second, 5 * time.Minute

	// A record that was in flight at the last crash is tried at another time after
	// each start, within so many times as long as a note takes, and within minSpread
	// at least.
	spread    = 20
	minSpread = 10 * time.Second
)

// Work is what a process works on, alone: a key, or one record of it. The zero
// value is nothing.
type Work struct {
	Key    string `json:"key,omitempty"`
	Record string `json:"record,omitempty"`
}

// Past is what is remembered of the starts of a process before this one, in all
// replicas. The zero value is a past without crashes.
type Past struct {
	// Starts counts the starts in a row, with the present one, that ended neither
	// by a stop nor after StableAfter.
	Starts int `json:"starts"`
	// InFlight is what was being worked on when this was written.
	InFlight Work `json:"inFlight,omitzero"`
	// Suspect was in flight at each of the last Crashes crashes, and its key at each
	// of the last KeyCrashes.
	Suspect    Work `json:"suspect,omitzero"`
	Crashes    int  `json:"deaths,omitempty"`
	KeyCrashes int  `json:"keyDeaths,omitempty"`
	// Deep reports whether a process in isolation mode crashed with nothing in flight: the
	// next one has the reading of each delivery in flight, too.
	Deep bool `json:"deep,omitempty"`
}

// Isolates reports whether the process works in isolation mode, because it crashed early
// again and again.
func (p Past) Isolates() bool { return p.Starts > isolateAfter }

// Next is the past of a process that starts now, and the poison record that has to be
// dead-lettered before, if there is one. Only what was alone in flight is ever suspected,
// and a crash with something else in flight, or nothing, frees it.
func (p Past) Next() (now Past, poison Work) {
	now = Past{Starts: p.Starts + 1}
	if !now.Isolates() {
		return now, Work{}
	}
	now.Deep = p.Deep
	switch {
	case p.InFlight == Work{}:
		// The first process in isolation mode starts with nothing in flight before it.
		now.Deep = p.Deep || p.Isolates()
		return now, Work{}
	case p.InFlight == p.Suspect:
		now.Suspect, now.Crashes, now.KeyCrashes = p.Suspect, p.Crashes+1, p.KeyCrashes+1
	case p.InFlight.Key == p.Suspect.Key:
		now.Suspect, now.Crashes, now.KeyCrashes = p.InFlight, 1, p.KeyCrashes+1
	default:
		now.Suspect, now.Crashes, now.KeyCrashes = p.InFlight, 1, 1
	}
	if now.Suspect.Record != "" && now.Crashes >= PoisonCrashes {
		return Past{Starts: now.Starts, Deep: now.Deep}, now.Suspect
	}
	return now, Work{}
}

// backoff is how long a key waits after a start of this past: others go first.
func (p Past) backoff(key string) time.Duration {
	if key == "" || key != p.Suspect.Key {
		return 0
	}
	d := minBackoff
	for n := 1; n < p.KeyCrashes && d < maxBackoff; n++ {
		d *= 2
	}
	return min(d, maxBackoff)
}

// golden is the fraction whose multiples, taken modulo 1, keep farthest apart: any
// two of three in a row by more than a fifth.
const golden = 0.6180339887498949

// pause is how long the try of a record waits after a start of this past, when a note
// takes so long. A record stays noted until the note after its try is written, and
// a process that crashes for another reason so long after each start would find the
// same record noted each time, if that is tried at the same time after each.
func (p Past) pause(record string, note time.Duration) time.Duration {
	if record == "" || record != p.Suspect.Record {
		return 0
	}
	_, part := math.Modf(golden * float64(p.Starts))
	return time.Duration(part * float64(max(minSpread, spread*note)))
}
