package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// rewrite sets a field that any value may follow.
func rewrite(text string) func(*record.Status) {
	return func(st *record.Status) { st.UserPodsEvictionStatus.Message = text }
}

func updateRace(t *testing.T, b Backend) {
	dsn := b.New(t)
	stores := []store.Store{Open(t, dsn, storeopen.Options{}), Open(t, dsn, storeopen.Options{})}
	r := Record("n")
	MustAppend(t, stores[0], r)
	var wins, losses atomic.Int64
	var racers sync.WaitGroup
	for g := range 6 {
		s := stores[g%2]
		racers.Go(func() {
			for n := range 10 {
				now := MustGet(t, s, r.ID)
				rewrite(fmt.Sprint(g, "/", n))(&now.Status)
				_, err := s.Update(within(t), record.NodeDrainer, []store.Change{{ID: r.ID, Revision: now.Revision, Status: now.Status}})
				switch {
				case err == nil:
					wins.Add(1)
				case errors.Is(err, store.ErrConflict):
					losses.Add(1)
				default:
					t.Errorf("updating: %v", err)
				}
			}
		})
	}
	racers.Wait()
	if got := MustGet(t, stores[1], r.ID).Revision; got != wins.Load() || wins.Load()+losses.Load() != 60 {
		t.Errorf("revision %d after %d wins and %d losses", got, wins.Load(), losses.Load())
	}
}

func updateAllOrNothing(t *testing.T, b Backend) {
	_, s := database(t, b)
	a, c := Record("n"), Record("n")
	MustAppend(t, s, a, c)
	evaluated := record.Status{QuarantineVerdict: &record.Verdict{Reason: record.NoRuleMatched}}
	good := store.Change{ID: a.ID, Status: evaluated}
	for name, tc := range map[string]struct {
		bad  store.Change
		want error
	}{
		"absent":     {store.Change{ID: "absent", Status: evaluated}, store.ErrNotFound},
		"lost race":  {store.Change{ID: c.ID, Revision: 1, Status: evaluated}, store.ErrConflict},
		"twice":      {store.Change{ID: a.ID, Status: evaluated}, store.ErrConflict},
		"not owner":  {store.Change{ID: c.ID, Status: record.Status{UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionFailed}}}, record.ErrNotOwner},
		"illegal":    {store.Change{ID: c.ID, Status: record.Status{NodeQuarantined: record.QuarantineCanceled}}, record.ErrIllegalTransition},
		"unstorable": {store.Change{ID: c.ID, Status: record.Status{Session: "\x00"}}, nil},
	} {
		_, err := s.Update(within(t), record.FaultQuarantine, []store.Change{good, tc.bad})
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		for _, id := range []string{a.ID, c.ID} {
			if r := MustGet(t, s, id); r.Revision != 0 || r.Evaluated() {
				t.Fatalf("%s: a part of the batch was written: %+v", name, r)
			}
		}
	}
	written, err := s.Update(within(t), record.FaultQuarantine, []store.Change{{ID: c.ID, Status: evaluated}, good})
	if err != nil || len(written) != 2 {
		t.Fatalf("the good batch: %v, %d records", err, len(written))
	}
	for i, id := range []string{c.ID, a.ID} {
		r := MustGet(t, s, id)
		if r.Revision != 1 || !r.Evaluated() {
			t.Errorf("after the good batch: %+v", r)
		}
		if diff := cmp.Diff(r, written[i]); diff != "" {
			t.Errorf("what was written is told as something else (-stored +told):\n%s", diff)
		}
	}
}

func updateCrossing(t *testing.T, b Backend) {
	dsn := b.New(t)
	s := Open(t, dsn, storeopen.Options{})
	records := faults(20)
	MustAppend(t, s, records...)
	backwards := slices.Clone(records)
	slices.Reverse(backwards)
	var writers sync.WaitGroup
	for g, order := range [][]record.Record{records, backwards, records, backwards} {
		s := Open(t, dsn, storeopen.Options{})
		writers.Go(func() {
			for n := range 5 {
				if err := updateAll(within(t), s, order, fmt.Sprint(g, n)); err != nil && !errors.Is(err, store.ErrConflict) {
					t.Errorf("crossing update: %v", err)
				}
			}
		})
	}
	writers.Wait()
	var revisions []int64
	for _, r := range records {
		revisions = append(revisions, MustGet(t, s, r.ID).Revision)
	}
	if got := slices.Compact(revisions); len(got) != 1 || got[0] == 0 {
		t.Errorf("revisions after whole batches: %v, want the same number everywhere", got)
	}
}

func updateAll(ctx context.Context, s store.Store, records []record.Record, text string) error {
	var changes []store.Change
	for _, r := range records {
		now, err := s.Get(ctx, r.ID)
		if err != nil {
			return err
		}
		rewrite(text)(&now.Status)
		changes = append(changes, store.Change{ID: r.ID, Revision: now.Revision, Status: now.Status})
	}
	_, err := s.Update(ctx, record.NodeDrainer, changes)
	return err
}

func updateAfterCut(t *testing.T, b Backend) {
	dsn, plain := database(t, b)
	s, arm := b.Interrupt(t, dsn)
	for _, before := range []bool{true, false} {
		records := faults(3)
		MustAppend(t, plain, records...)
		arm(before)
		err := updateAll(within(t), s, records, "x")
		if err == nil && !b.Repeats {
			t.Fatalf("before=%v: a broken update reports success", before)
		}
		want := int64(1)
		if before && err != nil {
			want = 0
		}
		for _, r := range records {
			if got := MustGet(t, plain, r.ID).Revision; got != want {
				t.Errorf("before=%v: revision %d, want %d for the whole batch", before, got, want)
			}
		}
		if err := updateAll(within(t), s, records, "y"); err != nil {
			t.Errorf("before=%v: the next update: %v", before, err)
		}
	}
}

func updateOwnership(t *testing.T, b Backend) {
	_, s := database(t, b)
	at, yes := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), true
	writers := []record.Writer{record.Connector, record.FaultQuarantine, record.NodeDrainer, record.FaultRemediation}
	for _, f := range []struct {
		name  string
		owner record.Writer
		edit  func(*record.Status)
	}{
		{"nodequarantined", record.FaultQuarantine, func(s *record.Status) { s.NodeQuarantined = record.Quarantined }},
		{"quarantinefinishtimestamp", record.FaultQuarantine, func(s *record.Status) { s.QuarantineFinishTimestamp = &at }},
		{"quarantineverdict", record.FaultQuarantine, func(s *record.Status) { s.QuarantineVerdict = &record.Verdict{Reason: record.Held} }},
		{"session", record.FaultQuarantine, func(s *record.Status) { s.Session = "s" }},
		{"faults", record.FaultQuarantine, func(s *record.Status) { s.Faults = []record.Fault{{Key: "k"}} }},
		{"userpodsevictionstatus", record.NodeDrainer, rewrite("m")},
		{"drainfinishtimestamp", record.NodeDrainer, func(s *record.Status) { s.DrainFinishTimestamp = &at }},
		{"faultremediated", record.FaultRemediation, func(s *record.Status) { s.FaultRemediated = &yes }},
		{"lastremediationtimestamp", record.FaultRemediation, func(s *record.Status) { s.LastRemediationTimestamp = &at }},
		{"remediation", record.FaultRemediation, func(s *record.Status) { s.Remediation = &record.Remediation{Cause: "c"} }},
	} {
		for _, w := range writers {
			r := Record("n")
			MustAppend(t, s, r)
			st := record.Status{}
			f.edit(&st)
			_, err := s.Update(within(t), w, []store.Change{{ID: r.ID, Status: st}})
			last := MustGet(t, s, r.ID)
			if w == f.owner && (err != nil || !sameDocument(last.Status, st)) {
				t.Errorf("%s by its owner: %v, stored %+v", f.name, err, last.Status)
			}
			if w != f.owner && (!errors.Is(err, record.ErrNotOwner) || last.Revision != 0) {
				t.Errorf("%s by %s: %v at revision %d, want ErrNotOwner", f.name, w, err, last.Revision)
			}
		}
	}
	expiryOwnership(t, s, at)
	every(t, s)
}

// expiryOwnership: only fault-quarantine sets expireAt; leaving it out keeps it.
func expiryOwnership(t *testing.T, s store.Store, at time.Time) {
	t.Helper()
	r := Record("n")
	MustAppend(t, s, r)
	if _, err := s.Update(within(t), record.NodeDrainer, []store.Change{{ID: r.ID, ExpireAt: &at}}); !errors.Is(err, record.ErrNotOwner) {
		t.Errorf("expireAt by %s: %v, want ErrNotOwner", record.NodeDrainer, err)
	}
	if _, err := s.Update(within(t), record.FaultQuarantine, []store.Change{{ID: r.ID, ExpireAt: &at}}); err != nil {
		t.Errorf("expireAt by its owner: %v", err)
	}
	got := update(t, s, record.NodeDrainer, r.ID, rewrite("later"))
	if got.ExpireAt == nil || !got.ExpireAt.Equal(at) {
		t.Errorf("expireAt after another's update: %v, want %v", got.ExpireAt, at)
	}
}

// every legal transition is possible, and no other.
func every(t *testing.T, s store.Store) {
	t.Helper()
	legal := map[record.Transition]bool{}
	for _, tr := range record.Transitions() {
		legal[tr] = true
	}
	for _, from := range someQuarantines {
		for _, to := range someQuarantines {
			r := Seed(t, s, Record("n", func(r *record.Record) { r.Status.NodeQuarantined = from }))[0]
			r.Status.NodeQuarantined = to
			_, err := s.Update(within(t), record.FaultQuarantine, []store.Change{{ID: r.ID, Revision: r.Revision, Status: r.Status}})
			tr := record.Transition{Field: "nodequarantined", From: string(from), To: string(to)}
			if want := legal[tr] || from == to; want != (err == nil) || !want && !errors.Is(err, record.ErrIllegalTransition) {
				t.Errorf("%+v: %v", tr, err)
			}
		}
	}
	if diff := cmp.Diff(true, legal[record.Transition{Field: "nodequarantined", To: "Quarantined"}]); diff != "" {
		t.Error("the table of transitions has other field names than this test")
	}
}
