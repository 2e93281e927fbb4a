package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Mortal is a database's server that a test may kill.
type Mortal interface {
	// Slay ends every process of the server with SIGKILL.
	Slay() error
	// Restart starts a dead server on its data and waits until it answers.
	Restart(ctx context.Context) error
}

// killedBatch is how many records each append of Killed has.
const killedBatch = 50

// Killed appends n records to the database at dsn while consumers follow it,
// and kills the server in the middle: every acknowledged record has to be there
// once, nothing else, and every consumer has to have seen each. It logs what happened.
func Killed(t *testing.T, server Mortal, dsn string, n int) {
	t.Helper()
	s := Open(t, dsn, storeopen.Options{})
	consumers := []*witness{
		{store: s, name: "insertions", selector: record.ProcessableHealthEventInserts()},
		{store: s, name: "changes", selector: record.Selector{Name: "changes", Strategy: record.Process}},
	}
	var watching sync.WaitGroup
	for _, c := range consumers {
		c.seen, c.want = map[string]bool{}, make(chan int, 1)
		watching.Go(func() { c.watch(t) })
	}
	acknowledged, failures := appendThroughCrash(t, server, s, n)
	for _, c := range consumers {
		c.want <- len(acknowledged)
	}
	watching.Wait()
	got, err := s.List(t.Context(), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	once := map[string]int{}
	for _, r := range got {
		once[r.ID]++
		if !acknowledged[r.ID] {
			t.Errorf("record %s was never acknowledged", r.ID)
		}
	}
	if len(once) != len(acknowledged) || len(got) != len(acknowledged) {
		t.Errorf("%d acknowledged, %d stored, %d of them different", len(acknowledged), len(got), len(once))
	}
	t.Logf("%d records acknowledged, the server gone in the middle (%d appends failed and were repeated): %d stored, each once",
		len(acknowledged), failures, len(got))
	for _, c := range consumers {
		t.Logf("consumer of %s has seen %d of %d", c.name, len(c.seen), len(acknowledged))
	}
}

// appendThroughCrash appends n records in batches, each until it is
// acknowledged, and kills the server when half of them are.
func appendThroughCrash(t *testing.T, server Mortal, s store.Store, n int) (acknowledged map[string]bool, failures int) {
	t.Helper()
	acknowledged = map[string]bool{}
	batches := max(2, n/killedBatch)
	dead := make(chan error, 1)
	revive := sync.OnceFunc(func() { revive(t, server, dead) })
	for i := range batches {
		var batch []record.Record
		for range killedBatch {
			batch = append(batch, Record("n"))
		}
		if i == batches/2 {
			go func() { dead <- server.Slay() }() // in the middle of what follows
		}
		for {
			_, err := s.Append(t.Context(), batch)
			if err == nil {
				break
			}
			failures++
			if t.Context().Err() != nil || i < batches/2 {
				t.Fatal(err)
			}
			revive()
		}
		for _, r := range batch {
			acknowledged[r.ID] = true
		}
	}
	revive() // when no append met its death
	return acknowledged, failures
}

// revive starts the server again when it is dead.
func revive(t *testing.T, server Mortal, dead <-chan error) {
	t.Helper()
	if err := <-dead; err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	for {
		err := server.Restart(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// witness follows the store and remembers what it has seen.
type witness struct {
	store    store.Store
	name     string
	selector record.Selector
	seen     map[string]bool
	want     chan int // how many to see, once it is known
}

// watch takes records until it has seen as many as wanted.
func (w *witness) watch(t *testing.T) {
	var f store.Feed
	for enough := -1; enough < 0 || len(w.seen) < enough; {
		select {
		case enough = <-w.want:
			continue
		case <-t.Context().Done():
			t.Errorf("the consumer of %s has seen %d records", w.name, len(w.seen))
			return
		default:
		}
		if f == nil {
			var err error
			if f, err = w.store.Feed(t.Context(), "killed "+w.name, w.selector); err != nil {
				f = nil
				continue // the server is away
			}
		}
		w.take(t, f)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// take waits a while for one record; what fails comes again.
func (w *witness) take(t *testing.T, f store.Feed) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r, position, err := f.Next(ctx)
	if err != nil {
		return
	}
	w.seen[r.ID] = true
	// The last ones of a hundred come again after a failure.
	if len(w.seen)%100 == 0 {
		_ = f.Commit(t.Context(), position) // a failure is the server's death
	}
}
