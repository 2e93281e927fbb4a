package crashloop

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

// memory is what outlives the process.
type memory struct {
	mu           sync.Mutex // guards past and saves
	past         Past
	deadLettered []Work
	saves        int
	loading      error
	refusing     error // to dead-letter
}

func (m *memory) Load(context.Context) (Past, error) { return m.past, m.loading }

func (m *memory) Save(_ context.Context, p Past) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past, m.saves = p, m.saves+1
	return nil
}

func (m *memory) inFlight() Work {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.past.InFlight
}

func (m *memory) MoveToDeadLetters(_ context.Context, w Work) error {
	if m.refusing == nil {
		m.deadLettered = append(m.deadLettered, w)
	}
	return m.refusing
}

func begin(t *testing.T, m *memory) *Guard {
	t.Helper()
	g := &Guard{}
	g.Begin(t.Context(), m, clock.RealClock{}, slog.New(slog.DiscardHandler))
	return g
}

// TestRecordThatCannotBeDeadLettered: a later start dead-letters the record, without a further
// crash.
func TestRecordThatCannotBeDeadLettered(t *testing.T) {
	x := Work{Key: "k", Record: "x"}
	m := &memory{past: Past{Starts: 6, InFlight: x, Suspect: x, Crashes: 2, KeyCrashes: 3}, refusing: errors.New("the disk is full")}
	for range 3 {
		if g := begin(t, m); !g.Isolates() || m.past.Suspect != x {
			t.Fatalf("isolates: %t; it remembers %+v", g.Isolates(), m.past)
		}
		m.past.InFlight = x // and crashes
	}
	m.refusing = nil
	begin(t, m)
	if diff := cmp.Diff([]Work{x}, m.deadLettered); diff != "" || m.past.Suspect != (Work{}) {
		t.Errorf("it remembers %+v; set aside (-want +got):\n%s", m.past, diff)
	}
}

// TestNotesAreWrittenInIsolationModeOnly, and each once; a stop ends it.
func TestNotesAreWrittenInIsolationModeOnly(t *testing.T) {
	for starts, want := range map[int]struct{ notes, saves int }{1: {0, 2}, 2: {2, 4}} {
		m := &memory{past: Past{Starts: starts}}
		g := begin(t, m)
		for range 2 {
			if err := g.Note(t.Context(), Work{Record: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Note(t.Context(), Work{}); err != nil {
			t.Fatal(err)
		}
		if got := m.saves - 1; got != want.notes {
			t.Errorf("after %d starts: %d notes, want %d", starts, got, want.notes)
		}
		g.End(t.Context())
		g.End(t.Context())
		if err := g.Note(t.Context(), Work{Record: "y"}); err != nil || m.saves != want.saves || m.past != (Past{}) {
			t.Errorf("after %d starts and a stop: %d writes, %+v, %v", starts, m.saves, m.past, err)
		}
	}
}

// TestWithoutItsMemory: the process works as before, and writes nothing over what it could
// not read.
func TestWithoutItsMemory(t *testing.T) {
	m := &memory{past: Past{Starts: 9}, loading: errors.New("the store is away")}
	g := begin(t, m)
	err := g.Announce(t.Context(), Work{Record: "x"})
	g.End(t.Context())
	if isolates, suspect, rest := g.Turn("k"); isolates || suspect || rest != 0 || err != nil || m.saves > 0 {
		t.Errorf("isolates: %t, suspect: %t, rests %s, %d writes, %v", isolates, suspect, rest, m.saves, err)
	}
}

// TestASuspectIsAnnouncedLater than others, with its key alone noted meanwhile.
func TestASuspectIsAnnouncedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := Work{Key: "k", Record: "x"}
		m := &memory{past: Past{Starts: 4, InFlight: x}}
		g := begin(t, m)
		began := time.Now()
		if err := g.Announce(t.Context(), Work{Key: "k", Record: "y"}); err != nil || time.Since(began) > 0 || m.inFlight().Record != "y" {
			t.Errorf("another record: in flight %+v after %s, %v", m.inFlight(), time.Since(began), err)
		}
		done := make(chan error, 1)
		go func() { done <- g.Announce(t.Context(), x) }()
		synctest.Wait()
		if m.inFlight() != (Work{Key: "k"}) {
			t.Errorf("while it waits, in flight is %+v", m.inFlight())
		}
		if err := <-done; err != nil || m.inFlight() != x || time.Since(began) == 0 {
			t.Errorf("in flight %+v after %s, %v", m.inFlight(), time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Announce(ctx, x); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v", err)
		}
	})
}
