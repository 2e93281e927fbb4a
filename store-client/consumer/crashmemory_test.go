package consumer_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashloop"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestTheRegisterIsOneOfAllReplicas: what one replica writes, the next one finds, and
// no other consumer.
func TestTheRegisterIsOneOfAllReplicas(t *testing.T) {
	s := storetest.Open(t, "sqlite://"+filepath.Join(t.TempDir(), "store.db"), storeopen.Options{SingleHost: true})
	storetest.MustAppend(t, s, storetest.Record("n"), storetest.Record("n"), storetest.Record("n"))
	all := list(t, s)
	first := consumer.OpenCrashMemory(s, "c", clock.RealClock{})
	past := crashloop.Past{Starts: 4, InFlight: crashloop.Work{Key: "n", Record: all[1]}, Suspect: crashloop.Work{Key: "n"}, Crashes: 1, KeyCrashes: 2, Deep: true}
	if _, err := first.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Save(t.Context(), crashloop.Past{Starts: 1}), first.Save(t.Context(), past), first.MoveToDeadLetters(t.Context(), past.InFlight)); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*consumer.CrashMemory{"the same": first, "the next": consumer.OpenCrashMemory(s, "c", clock.RealClock{})} {
		got, err := b.Load(t.Context())
		if diff := cmp.Diff(past, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if !b.IsDeadLetter(all[1]) || b.IsDeadLetter(all[0]) || b.Count() != 1 {
			t.Errorf("%s: set aside %v", name, b.IDs())
		}
		if diff := cmp.Diff([]string{all[0], all[2]}, list(t, b.WithoutDeadLetters())); diff != "" {
			t.Errorf("%s lists (-want +got):\n%s", name, diff)
		}
		if _, err := b.WithoutDeadLetters().Get(t.Context(), all[1]); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s gets it: %v", name, err)
		}
		var seen []string
		err = b.Vetting(record.BacklogOfNode, func(context.Context, record.Record) {}).Records(t.Context(), "n", func(r record.Record) error {
			seen = append(seen, r.ID)
			return nil
		})
		if diff := cmp.Diff([]string{all[0], all[2]}, seen); diff != "" || err != nil {
			t.Errorf("%s tries: %v (-want +got):\n%s", name, err, diff)
		}
	}
	other := consumer.OpenCrashMemory(s, "d", clock.RealClock{})
	if got, err := other.Load(t.Context()); got != (crashloop.Past{}) || err != nil || other.Count() != 0 {
		t.Errorf("another consumer remembers %+v, %v, %v", got, err, other.IDs())
	}
}

// TestAThawedLeaderLeavesItsSuccessorsAccount: what a leader writes that does not
// know yet that it leads no more is not what the next one reads; the account of as
// many lives as there are letters is kept apart.
func TestAThawedLeaderLeavesItsSuccessorsAccount(t *testing.T) {
	s := storetest.SQLite(t)
	begin := func(starts int) *consumer.CrashMemory {
		t.Helper()
		b := consumer.OpenCrashMemory(s, "c", clock.RealClock{})
		past, err := b.Load(t.Context())
		if err != nil || past.Starts != starts {
			t.Fatalf("a life begins with %+v, %v; want %d starts", past, err, starts)
		}
		past.Starts++
		if err := b.Save(t.Context(), past); err != nil {
			t.Fatal(err)
		}
		return b
	}
	frozen := begin(0)
	for n := 1; n <= 15; n++ {
		begin(n)
		if n%5 == 0 {
			if err := frozen.Save(t.Context(), crashloop.Past{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := begin(16)
	busy := crashloop.Past{Starts: 17, Suspect: crashloop.Work{Key: "n"}, KeyCrashes: 2}
	if err := last.Save(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	suspects, err := consumer.Suspects(t.Context(), s)
	if err != nil || len(suspects) != 1 || suspects[0].Consumer != "c" || suspects[0].Key != "n" || suspects[0].Crashes != 2 || suspects[0].At.IsZero() {
		t.Errorf("suspects %+v, %v", suspects, err)
	}
	if err := last.Save(t.Context(), crashloop.Past{}); err != nil { // it stops
		t.Fatal(err)
	}
	begin(0)
	if suspects, err = consumer.Suspects(t.Context(), s); err != nil || len(suspects) > 0 {
		t.Errorf("after a stop: suspects %+v, %v", suspects, err)
	}
	other := consumer.OpenCrashMemory(s, "c/d", clock.RealClock{})
	if past, err := other.Load(t.Context()); err != nil || past != (crashloop.Past{}) {
		t.Errorf("another consumer begins with %+v, %v", past, err)
	}
}

func list(t *testing.T, s store.Store) (ids []string) {
	t.Helper()
	records, err := s.List(t.Context(), store.Query{Selector: record.BacklogOfNode("n")})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}
