package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// maintenanceCases are the promises of store.Maintenances.
func maintenanceCases() []testCase {
	return []testCase{
		{"maintenances: a reading and its checkpoint are read back equal", savedEqual},
		{"maintenances: what is left of one provider, by id", savedUnfinished},
		{"maintenances: racing compare-and-sets, one wins each revision", savedRace},
		{"maintenances: an update is all or nothing", savedAllOrNothing},
		{"maintenances: an update after a cut connection", savedAfterCut},
		{"maintenances: the writer is killed; no checkpoint is ahead of its maintenances", savedKilled},
		{"maintenances: refused if it could not be given back unchanged", savedUnstorable},
		{"maintenances: a document that cannot be decoded is named and left out", savedPoisoned},
		{"maintenances: what this version does not know survives an update", newerMaintenance},
		{"maintenances: only what is finished and has expired is forgotten", savedForgotten},
	}
}

// Maintenances opens what providers announce until the test ends; sqlite is
// admitted.
func Maintenances(t testing.TB, dsn string) store.Maintenances {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	m, err := storeopen.OpenMaintenances(ctx, dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatalf("opening the maintenances: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("closing the maintenances: %v", err)
		}
	})
	return m
}

// maintenances makes a database, as a service does, and opens it.
func maintenances(t *testing.T, b Backend) (string, store.Maintenances) {
	t.Helper()
	dsn, _ := database(t, b)
	return dsn, Maintenances(t, dsn)
}

// Maintenance is an announced maintenance that fills every field.
func Maintenance(csp, id string, edit ...func(*maintenance.Event)) maintenance.Event {
	at := func(minute int) *time.Time { return new(time.Date(2026, 1, 2, 3, minute, 5, 678901000, time.UTC)) }
	reported := func(id string) *maintenance.Report {
		return &maintenance.Report{ID: id, Strategy: record.Process, At: *at(9)}
	}
	e := maintenance.Event{
		EventID: id, CSP: csp, ClusterName: "c", ResourceType: "EC2", ResourceID: "i-" + id, NodeName: "n-" + id,
		Kind: maintenance.Scheduled, Code: "INSTANCE_REBOOT", Status: maintenance.Detected, CSPStatus: maintenance.Pending,
		Emergency: true, Vanished: true, ScheduledStart: at(1), ScheduledEnd: at(2), ActualStart: at(3), ActualEnd: at(4),
		Received: *at(5), LastUpdated: *at(6), ProviderUpdated: at(7), RecommendedAction: record.ActionRestartVM,
		Description: "text for people: \u00e9 \u2028 <>", Metadata: map[string]string{"eventArn": "arn:aws:health"},
		Occurrence: 1, Reports: 3, Quarantined: reported("q"), TimedOut: reported("t"), Healed: reported("h"), Outcome: "why",
		Waiting: &maintenance.Waiting{Stage: maintenance.Healthy, Reason: "completed", Event: Record("n").Event},
	}
	for _, f := range edit {
		f(&e)
	}
	return e
}

func mustSave(t testing.TB, m store.Maintenances, u store.MaintenanceUpdate) {
	t.Helper()
	if err := m.SaveMaintenances(within(t), u); err != nil {
		t.Fatalf("saving: %v", err)
	}
}

// savedEqual: what was saved is read back with the next revision and nothing else
// changed, over a second update too.
func savedEqual(t *testing.T, b Backend) {
	dsn, m := maintenances(t, b)
	if _, err := m.Provider(within(t), "aws"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a provider that was never read: %v", err)
	}
	e := Maintenance("aws", "a/b c")
	p := maintenance.Provider{
		CSP: "aws", Checkpoint: `{"after":"x"}`, ReadAt: e.Received,
		Unreachable: &maintenance.Unreachable{NodeName: "n", Since: e.Received, Reported: e.Healed, Waiting: e.Waiting},
	}
	for revision := range int64(2) {
		e.Revision, p.Revision = revision, revision
		e.Description += "."
		mustSave(t, m, store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{e}, Provider: &p})
		e.Revision, p.Revision = revision+1, revision+1
		other := Maintenances(t, dsn)
		got, err := other.Maintenances(within(t), "aws", []string{"absent", e.EventID})
		if diff := cmp.Diff([]maintenance.Event{e}, got); diff != "" || err != nil {
			t.Fatalf("%v; read back (-want +got):\n%s", err, diff)
		}
		provider, err := other.Provider(within(t), "aws")
		if diff := cmp.Diff(p, provider); diff != "" || err != nil {
			t.Fatalf("%v; the provider (-want +got):\n%s", err, diff)
		}
	}
}

func savedUnfinished(t *testing.T, b Backend) {
	_, m := maintenances(t, b)
	const many = 30
	var all []maintenance.Event
	var want []string
	for i := range many {
		e := Maintenance("aws", fmt.Sprintf("m-%02d", i), func(e *maintenance.Event) { e.Finished = i%3 == 0 })
		if !e.Finished {
			want = append(want, e.EventID)
		}
		all = append(all, e)
	}
	slices.Reverse(all)
	mustSave(t, m, store.MaintenanceUpdate{CSP: "aws", Events: all})
	mustSave(t, m, store.MaintenanceUpdate{CSP: "gcp", Events: []maintenance.Event{Maintenance("gcp", "m-01")}})
	// One ends later.
	last := all[0]
	last.Revision, last.Finished = 1, true
	mustSave(t, m, store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{last}})
	want = slices.DeleteFunc(want, func(id string) bool { return id == last.EventID })
	got, err := m.Unfinished(within(t), "aws")
	if diff := cmp.Diff(want, maintenanceIDs(got)); diff != "" || err != nil {
		t.Errorf("%v; unfinished (-want +got):\n%s", err, diff)
	}
	if got, err := m.Unfinished(within(t), "azure"); len(got) != 0 || err != nil {
		t.Errorf("of a provider without any: %v, %v", got, err)
	}
	if got, err := m.Maintenances(within(t), "aws", []string{"m-09", "m-02", "m-00"}); err != nil ||
		!slices.Equal(maintenanceIDs(got), []string{"m-00", "m-02", "m-09"}) {
		t.Errorf("by id: %v, %v", maintenanceIDs(got), err)
	}
}

func maintenanceIDs(events []maintenance.Event) (out []string) {
	for _, e := range events {
		out = append(out, e.EventID)
	}
	return out
}

// savedRace: many writers count in one document; every success is one step.
func savedRace(t *testing.T, b Backend) {
	dsn, m := maintenances(t, b)
	writers, each := 4, 8
	if b.Slow {
		writers, each = 2, 4
	}
	ctx := within(t)
	var running sync.WaitGroup
	for range writers {
		own := Maintenances(t, dsn)
		running.Go(func() {
			for done := 0; done < each; {
				e := Maintenance("aws", "m", func(e *maintenance.Event) { e.Occurrence = 0 })
				switch got, err := own.Maintenances(ctx, "aws", []string{"m"}); {
				case err != nil:
					t.Error(err)
					return
				case len(got) == 1:
					e = got[0]
				}
				e.Occurrence++
				err := own.SaveMaintenances(ctx, store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{e}})
				switch {
				case err == nil:
					done++
				case !errors.Is(err, store.ErrConflict):
					t.Errorf("a lost race is %v", err)
					return
				}
			}
		})
	}
	running.Wait()
	got, err := m.Maintenances(ctx, "aws", []string{"m"})
	if err != nil || len(got) != 1 || got[0].Occurrence != writers*each || got[0].Revision != int64(writers*each) {
		t.Errorf("%d writers of %d steps each left %+v, %v", writers, each, got, err)
	}
}

// savedAllOrNothing: one document, or the provider's, has another revision: nothing is
// written, whichever comes first.
func savedAllOrNothing(t *testing.T, b Backend) {
	_, m := maintenances(t, b)
	first := Maintenance("aws", "b")
	mustSave(t, m, store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{first}, Provider: &maintenance.Provider{CSP: "aws", Checkpoint: "1"}})
	first.Revision = 1
	changed, stale, fresh := first, first, Maintenance("aws", "b")
	changed.Description = "changed"
	stale.Revision = 2
	for name, update := range map[string]store.MaintenanceUpdate{
		"a revision that is not there":    {Events: []maintenance.Event{Maintenance("aws", "a"), stale}},
		"a new one that is there":         {Events: []maintenance.Event{Maintenance("aws", "a"), fresh}},
		"one that is not there":           {Events: []maintenance.Event{changed, Maintenance("aws", "z", func(e *maintenance.Event) { e.Revision = 1 })}},
		"the provider was read meanwhile": {Events: []maintenance.Event{changed}, Provider: &maintenance.Provider{CSP: "aws", Checkpoint: "2"}},
		"the maintenance, not the provider": {Events: []maintenance.Event{stale},
			Provider: &maintenance.Provider{CSP: "aws", Checkpoint: "2", Revision: 1}},
	} {
		update.CSP = "aws"
		if err := m.SaveMaintenances(within(t), update); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
		got, err := m.Unfinished(within(t), "aws")
		if diff := cmp.Diff([]maintenance.Event{first}, got); diff != "" || err != nil {
			t.Errorf("%s: %v; stored (-want +got):\n%s", name, err, diff)
		}
		if p, err := m.Provider(within(t), "aws"); p.Checkpoint != "1" || err != nil {
			t.Errorf("%s: checkpoint %q, %v", name, p.Checkpoint, err)
		}
	}
}

// saver is what a broken connection is tried with.
type saver interface {
	SaveMaintenances(ctx context.Context, u store.MaintenanceUpdate) error
}

// savedAfterCut: the answer of a commit is lost, or the commit; the checkpoint and its
// maintenances are there together or not at all, and who reads again goes on.
func savedAfterCut(t *testing.T, b Backend) {
	dsn, m := maintenances(t, b)
	cut, arm := b.Interrupt(t, dsn)
	through, ok := cut.(saver)
	if !ok {
		t.Fatalf("%T saves no maintenances", cut)
	}
	for n, before := range []bool{true, false} {
		p := maintenance.Provider{CSP: "aws", Checkpoint: fmt.Sprint(n), Revision: int64(n)}
		a, z := Maintenance("aws", fmt.Sprint("a", n)), Maintenance("aws", fmt.Sprint("z", n))
		update := store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{a, z}, Provider: &p}
		arm(before)
		err := through.SaveMaintenances(within(t), update)
		if err == nil && !b.Repeats {
			t.Fatalf("before=%v: a broken update reports success", before)
		}
		got, read := m.Maintenances(within(t), "aws", []string{a.EventID, z.EventID})
		if read != nil {
			t.Fatal(read)
		}
		want := 2
		if before && err != nil {
			want = 0
		}
		if len(got) != want {
			t.Errorf("before=%v: %v; %d of 2 are stored, want %d", before, err, len(got), want)
		}
		if want == 0 {
			mustSave(t, m, update)
		} else if again := m.SaveMaintenances(within(t), update); !errors.Is(again, store.ErrConflict) {
			t.Errorf("before=%v: the same again: %v", before, again)
		}
		if stored, err := m.Provider(within(t), "aws"); stored.Checkpoint != p.Checkpoint || err != nil {
			t.Errorf("before=%v: checkpoint %q, %v", before, stored.Checkpoint, err)
		}
	}
}

// saveForever saves readings, the n-th with maintenance n and checkpoint n, from where
// the one before was killed. What that one held is held until the server ends its
// transaction.
func saveForever(t *testing.T, m store.Maintenances) {
	ctx := within(t)
	for ctx.Err() == nil {
		p, err := m.Provider(ctx, "aws")
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		p.CSP, p.Checkpoint = "aws", fmt.Sprint(p.Revision+1)
		err = m.SaveMaintenances(ctx, store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{Maintenance("aws", "m"+p.Checkpoint)}, Provider: &p})
		if err == nil {
			fmt.Println(childLine + p.Checkpoint)
		}
	}
	t.Fatal("nothing was saved any more")
}

func savedKilled(t *testing.T, b Backend) {
	if b.Orphans != nil && b.Orphans(t) {
		t.Skip("this server never ends the transaction of a client that was killed")
	}
	dsn, m := maintenances(t, b)
	for round := range 3 {
		lines := killAfter(t, dsn, "save", 2+2*round)
		p, err := m.Provider(within(t), "aws")
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Unfinished(within(t), "aws")
		if err != nil || int64(len(got)) != p.Revision || p.Checkpoint != fmt.Sprint(p.Revision) {
			t.Errorf("checkpoint %s of revision %d beside %d maintenances, %v", p.Checkpoint, p.Revision, len(got), err)
		}
		for _, line := range lines {
			if !slices.ContainsFunc(got, func(e maintenance.Event) bool { return e.EventID == "m"+line }) {
				t.Errorf("reading %s was acknowledged and is not there", line)
			}
		}
	}
}

func savedUnstorable(t *testing.T, b Backend) {
	_, m := maintenances(t, b)
	good := Maintenance("aws", "good")
	edit := func(f func(*maintenance.Event)) store.MaintenanceUpdate {
		return store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{good, Maintenance("aws", "bad", f)}}
	}
	for name, update := range map[string]store.MaintenanceUpdate{
		"no id":                {CSP: "aws", Events: []maintenance.Event{good, Maintenance("aws", "")}},
		"a long id":            {CSP: "aws", Events: []maintenance.Event{good, Maintenance("aws", strings.Repeat("x", 513))}},
		"another provider":     edit(func(e *maintenance.Event) { e.CSP = "gcp" }),
		"no provider":          {Events: []maintenance.Event{Maintenance("", "x")}},
		"twice":                {CSP: "aws", Events: []maintenance.Event{good, good}},
		"U+0000":               edit(func(e *maintenance.Event) { e.Description = "a\x00b" }),
		"invalid UTF-8":        edit(func(e *maintenance.Event) { e.Metadata = map[string]string{"k": "\xff"} }),
		"a year that is none":  edit(func(e *maintenance.Event) { e.ScheduledStart = new(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)) }),
		"U+0000 in checkpoint": {CSP: "aws", Events: []maintenance.Event{good}, Provider: &maintenance.Provider{CSP: "aws", Checkpoint: "\x00"}},
		"too many":             {CSP: "aws", Events: make([]maintenance.Event, store.MaxMaintenances+1)},
	} {
		if err := m.SaveMaintenances(within(t), update); err == nil || errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := m.Unfinished(within(t), "aws"); len(got) != 0 || err != nil {
		t.Errorf("%v are stored, %v", maintenanceIDs(got), err)
	}
}

func savedPoisoned(t *testing.T, b Backend) {
	dsn, m := maintenances(t, b)
	mustSave(t, m, store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{Maintenance("aws", "a"), Maintenance("aws", "b"), Maintenance("aws", "c")}})
	b.PoisonMaintenance(t, dsn, "aws", "b")
	for name, read := range map[string]func() ([]maintenance.Event, error){
		"unfinished": func() ([]maintenance.Event, error) { return m.Unfinished(within(t), "aws") },
		"by id":      func() ([]maintenance.Event, error) { return m.Maintenances(within(t), "aws", []string{"a", "b", "c"}) },
	} {
		got, err := read()
		named, ok := errors.AsType[*store.UndecodableError](err)
		if !ok || !slices.Equal(named.IDs, []string{"b"}) || !errors.Is(err, store.ErrUndecodable) || !slices.Equal(maintenanceIDs(got), []string{"a", "c"}) {
			t.Errorf("%s: %v, %v", name, maintenanceIDs(got), err)
		}
	}
}

func savedForgotten(t *testing.T, b Backend) {
	_, m := maintenances(t, b)
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	ends := func(finished bool, at time.Duration) func(*maintenance.Event) {
		return func(e *maintenance.Event) { e.Finished, e.ExpireAt = finished, new(now.Add(at)) }
	}
	events := []maintenance.Event{
		Maintenance("aws", "expired", ends(true, -time.Second)), Maintenance("aws", "kept", ends(true, time.Second)),
		Maintenance("aws", "open", ends(false, -time.Second)),
		Maintenance("aws", "without", func(e *maintenance.Event) { e.Finished = true }),
	}
	mustSave(t, m, store.MaintenanceUpdate{CSP: "aws", Events: events})
	for _, want := range []int{1, 0} {
		if n, err := m.Forget(within(t), now); n != want || err != nil {
			t.Errorf("%d are forgotten, %v; want %d", n, err, want)
		}
	}
	got, err := m.Maintenances(within(t), "aws", []string{"expired", "kept", "open", "without"})
	if !slices.Equal(maintenanceIDs(got), []string{"kept", "open", "without"}) || err != nil {
		t.Errorf("left are %v, %v", maintenanceIDs(got), err)
	}
}
