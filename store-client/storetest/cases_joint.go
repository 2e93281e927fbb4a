package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// attempt is one update among many at once.
type attempt struct {
	name      string
	changes   []store.Change
	cancelled bool // its caller's context has ended
	want      error
	err       error
}

// attempts are one of each outcome.
func attempts(a, c record.Record) []*attempt {
	evaluated := record.Status{QuarantineVerdict: &record.Verdict{Reason: record.NoRuleMatched}}
	good, late := store.Change{ID: a.ID, Status: evaluated}, store.Change{ID: c.ID, Revision: 1, Status: evaluated}
	foreign := record.Status{UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionFailed}}
	return []*attempt{
		{name: "good", changes: []store.Change{good}},
		{name: "two", changes: []store.Change{{ID: c.ID, Status: evaluated}, good}},
		{name: "lost race", changes: []store.Change{late}, want: store.ErrConflict},
		{name: "lost race in part", changes: []store.Change{good, late}, want: store.ErrConflict},
		{name: "absent", changes: []store.Change{{ID: "no " + a.ID, Status: evaluated}}, want: store.ErrNotFound},
		{name: "absent in part", changes: []store.Change{good, {ID: "no " + a.ID, Status: evaluated}}, want: store.ErrNotFound},
		{name: "not owner", changes: []store.Change{{ID: a.ID, Status: foreign}}, want: record.ErrNotOwner},
		{name: "illegal", changes: []store.Change{{ID: a.ID, Status: record.Status{NodeQuarantined: record.QuarantineCanceled}}}, want: record.ErrIllegalTransition},
		{name: "gone", changes: []store.Change{good}, cancelled: true, want: context.Canceled},
	}
}

// updateTogether: the result of one update does not affect the results of the others.
func updateTogether(t *testing.T, b Backend) {
	dsn := b.New(t)
	stores := []store.Store{Open(t, dsn, storeopen.Options{}), Open(t, dsn, storeopen.Options{})}
	rounds := 12
	if b.Slow {
		rounds = 2
	}
	var all []*attempt
	for range rounds {
		for i := range attempts(Record("n"), Record("n")) {
			records := faults(2)
			MustAppend(t, stores[0], records...)
			all = append(all, attempts(records[0], records[1])[i])
		}
	}
	ended, end := context.WithCancel(within(t))
	end()
	inParallel(len(all), func(i int) {
		ctx := within(t)
		if all[i].cancelled {
			ctx = ended
		}
		_, all[i].err = stores[i%2].Update(ctx, record.FaultQuarantine, all[i].changes)
	})
	for _, a := range all {
		if !errors.Is(a.err, a.want) {
			t.Errorf("%s: %v, want %v", a.name, a.err, a.want)
		}
		applied(t, stores[0], a)
	}
}

// applied checks that an update was, or that nothing of it was.
func applied(t *testing.T, s store.Store, a *attempt) {
	t.Helper()
	want := int64(0)
	if a.err == nil {
		want = 1
	}
	for _, c := range a.changes {
		r, err := s.Get(within(t), c.ID)
		if err == nil && (r.Revision != want || r.Evaluated() != (want == 1)) || err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v, but record %q is stored as %+v, %v", a.name, a.err, c.ID, r, err)
		}
	}
}

// updateOneRecord: of many at once that change one record, one does.
func updateOneRecord(t *testing.T, b Backend) {
	_, s := database(t, b)
	r := Record("n")
	MustAppend(t, s, r)
	errs := make([]error, 12)
	for revision := range int64(5) {
		inParallel(len(errs), func(i int) {
			c := store.Change{ID: r.ID, Revision: revision}
			rewrite(fmt.Sprint(i, "/", revision))(&c.Status)
			_, errs[i] = s.Update(within(t), record.NodeDrainer, []store.Change{c})
		})
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, store.ErrConflict):
				t.Errorf("revision %d: %v", revision, err)
			}
		}
		if now := MustGet(t, s, r.ID).Revision; won != 1 || now != revision+1 {
			t.Fatalf("%d changed revision %d, which is %d now", won, revision, now)
		}
	}
}

// updateCancelled: callers that go while they wait hold nobody up.
func updateCancelled(t *testing.T, b Backend) {
	_, s := database(t, b)
	many := 40
	if b.Slow {
		many = 10
	}
	all := make([]*attempt, many)
	for i := range all {
		records := faults(2)
		MustAppend(t, s, records...)
		all[i] = attempts(records[0], records[1])[i%4/2] // good, or two
	}
	inParallel(many, func(i int) {
		ctx, cancel := context.WithCancel(within(t))
		var leaver sync.WaitGroup
		if i%2 == 0 {
			leaver.Go(cancel)
		}
		_, all[i].err = s.Update(ctx, record.FaultQuarantine, all[i].changes)
		leaver.Wait()
		cancel()
	})
	for i, a := range all {
		switch {
		case a.err == nil:
			applied(t, s, a)
		case i%2 == 1:
			t.Errorf("update %d, whose caller waited: %v", i, a.err)
		case !errors.Is(a.err, context.Canceled):
			t.Errorf("update %d, whose caller went: %v", i, a.err)
		}
	}
}

// inParallel does n things at once, as far as there are processors.
func inParallel(n int, do func(i int)) {
	var begin, all sync.WaitGroup
	begin.Add(1)
	for i := range n {
		all.Go(func() {
			begin.Wait()
			do(i)
		})
	}
	begin.Done()
	all.Wait()
}
