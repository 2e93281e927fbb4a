package keep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/keep"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// pair is a server and the one that takes its place, which may lack records.
type pair struct {
	store.Store
	mu     sync.Mutex
	name   string
	ids    []string
	away   error
	closed bool
}

func (p *pair) Server(context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name, p.away
}

func (p *pair) Append(_ context.Context, records []record.Record) (results []store.AppendResult, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return nil, p.away
	}
	for _, r := range records {
		result := store.Appended
		for _, id := range p.ids {
			if id == r.ID {
				result = store.Duplicate
			}
		}
		if r.ID == "refused" {
			result = store.Refused
		}
		if result == store.Appended {
			p.ids = append(p.ids, r.ID)
		}
		results = append(results, result)
	}
	return results, nil
}

func (p *pair) Close() error { p.closed = true; return nil }

// fail lets the other server take over with the first n records, or away.
func (p *pair) fail(name string, n int, away error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.ids, p.away = name, p.ids[:n], away
}

func (p *pair) has() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.ids...)
}

func expect(t *testing.T, p *pair, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), p.has()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestWhatAServerLostIsAppendedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{name: "one"}
		s := keep.Over(p, keep.Policy{For: 10 * time.Minute, Bytes: 1 << 20}, clock.RealClock{}, slog.New(slog.DiscardHandler), nil)
		put := func(ids ...string) {
			t.Helper()
			var records []record.Record
			for _, id := range ids {
				records = append(records, record.Record{ID: id})
			}
			if _, err := s.Append(t.Context(), records); err != nil {
				t.Fatal(err)
			}
		}
		put("old")
		<-time.After(11 * time.Minute)
		put("a", "refused", "b")
		put("c")
		<-time.After(5 * time.Minute)
		expect(t, p, "nothing happened", "old", "a", "b", "c")

		p.fail("two", 0, errors.New("nobody listens"))
		<-time.After(time.Minute)
		p.fail("two", 0, nil)
		<-time.After(11 * time.Second)
		expect(t, p, "after a failover, the old one's time was over", "a", "b", "c")

		put("d")
		p.fail("three", 1, nil)
		<-time.After(11 * time.Second)
		expect(t, p, "after another failover", "a", "b", "c", "d")

		<-time.After(11 * time.Minute)
		p.fail("four", 0, nil)
		<-time.After(time.Minute)
		expect(t, p, "after the time was over")
		put("e")
		p.fail("five", 0, nil)
		<-time.After(11 * time.Second)
		expect(t, p, "a server that took over while nothing was kept is known", "e")
		if err := s.Close(); err != nil || !p.closed {
			t.Errorf("closed %v, %v", p.closed, err)
		}
	})
}

func TestTheOldestAreLetGoForWantOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{name: "one"}
		s := keep.Over(p, keep.Policy{For: time.Hour, Bytes: 10 << 10}, clock.RealClock{}, slog.New(slog.DiscardHandler), nil)
		for i := range 100 {
			if _, err := s.Append(t.Context(), []record.Record{{ID: fmt.Sprint(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		p.fail("two", 0, nil)
		<-time.After(11 * time.Second)
		if got := p.has(); len(got) != 10 || got[9] != "99" {
			t.Errorf("%d were appended again, want the newest ten: %v", len(got), got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
