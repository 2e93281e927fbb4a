package storeopen_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func TestUnknownProvider(t *testing.T) {
	for _, dsn := range []string{"", "sqlit:///x", "postgre://u:pw@h/d", "/x.db", "SQLITE:///x", "mysql://h"} {
		for _, err := range []error{storeopen.Check(dsn, storeopen.Options{}), open(t, dsn, storeopen.Options{SingleHost: true})} {
			if err == nil || !strings.Contains(err.Error(), "sqlite:///") || !strings.Contains(err.Error(), "postgres://") {
				t.Errorf("%q: %v, want an error that lists the providers", dsn, err)
			}
		}
	}
}

func TestSingleHost(t *testing.T) {
	dsn := storetest.SQLiteDSN(t)
	for _, err := range []error{storeopen.Check(dsn, storeopen.Options{}), open(t, dsn, storeopen.Options{})} {
		if err == nil || !strings.Contains(err.Error(), "--single-host") {
			t.Errorf("without --single-host: %v", err)
		}
	}
	if err := storeopen.Check(dsn, storeopen.Options{SingleHost: true}); err != nil {
		t.Errorf("with --single-host: %v", err)
	}
}

func open(t *testing.T, dsn string, o storeopen.Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := storeopen.Open(ctx, dsn, o)
	if err == nil {
		t.Errorf("%q was opened", dsn)
		err = errors.New("it opened")
		if c := s.Close(); c != nil {
			t.Error(c)
		}
	}
	return err
}

// A feed that matches nothing stores now and then how far it has looked, but
// not while something delivered is not committed.
func TestIdleFeedMovesOn(t *testing.T) {
	dsn := storetest.SQLiteDSN(t)
	fake := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s := storetest.Open(t, dsn, storeopen.Options{Clock: fake})
	writer := storetest.Open(t, dsn, storeopen.Options{})
	f, err := s.Feed(t.Context(), "c", record.Selector{InsertsOnly: true, Node: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	mine := storetest.Record("mine")
	storetest.MustAppend(t, writer, mine)
	if _, _, err := f.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	idle(t, fake, f)
	// Not committed: it comes again.
	again, err := s.Feed(t.Context(), "c", record.Selector{InsertsOnly: true, Node: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if got := storetest.Receive(t, again, 1)[0]; got.ID != mine.ID {
		t.Errorf("fed %s, want %s", got.ID, mine.ID)
	}
	storetest.MustAppend(t, writer, storetest.Record("other"))
	idle(t, fake, again)
	// Looked at and stored: a wider selector of the same consumer goes on after it.
	wider, err := s.Feed(t.Context(), "c", record.AllHealthEventInserts())
	if err != nil {
		t.Fatal(err)
	}
	last := storetest.Record("other")
	storetest.MustAppend(t, writer, last)
	if got := storetest.Receive(t, wider, 1)[0]; got.ID != last.ID {
		t.Errorf("fed %s, want %s", got.ID, last.ID)
	}
	for _, f := range []store.Feed{f, again, wider} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// idle lets a feed wait for two minutes of its clock.
func idle(t *testing.T, fake *testingclock.FakeClock, f store.Feed) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := f.Next(ctx)
		done <- err
	}()
	for range 120 {
		awaitWaiter(t, fake)
		fake.Step(time.Second)
	}
	awaitWaiter(t, fake)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("an idle feed: %v", err)
	}
}

// awaitWaiter waits until something waits on the clock.
func awaitWaiter(t *testing.T, fake *testingclock.FakeClock) {
	t.Helper()
	tick := clock.RealClock{}.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 120_000 { // two minutes
		if fake.HasWaiters() {
			return
		}
		<-tick.C()
	}
	t.Fatal("nothing waits on the clock")
}
