package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// unknown is a member that no version knows.
const unknown = "newerField"

// texts are objects whose members are all texts of somebody's choice.
var texts = []string{"metadata", "outputs"}

// enrich adds the unknown member to every object of a tree; its value is the object's path.
func enrich(tree any, path string) {
	switch v := tree.(type) {
	case map[string]any:
		for name, value := range v {
			if !slices.Contains(texts, name) {
				enrich(value, path+"."+name)
			}
		}
		v[unknown] = map[string]any{"at": path, "n": json.Number("12345678901234567890"), "of": []any{nil, 1.5, "<>"}}
	case []any:
		for i, value := range v {
			enrich(value, fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// enriched lists where a tree has the unknown member; each has to be at the path in its value.
func enriched(t testing.TB, tree any, path string, found map[string]bool) map[string]bool {
	t.Helper()
	switch v := tree.(type) {
	case map[string]any:
		if has, ok := v[unknown].(map[string]any); ok {
			want := map[string]any{"at": path, "n": json.Number("12345678901234567890"), "of": []any{nil, json.Number("1.5"), "<>"}}
			if diff := cmp.Diff(want, has); diff != "" {
				t.Errorf("at %s (-want +got):\n%s", path, diff)
			}
			found[path] = true
		}
		for name, value := range v {
			if name != unknown {
				enriched(t, value, path+"."+name, found)
			}
		}
	case []any:
		for i, value := range v {
			enriched(t, value, fmt.Sprintf("%s[%d]", path, i), found)
		}
	}
	return found
}

func treeOf(t testing.TB, doc []byte) map[string]any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var out map[string]any
	if err := dec.Decode(&out); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return out
}

// Newer makes a document that of a newer version: every object in it has a member that
// no program knows.
func Newer(t testing.TB, doc []byte) []byte {
	t.Helper()
	tree := treeOf(t, doc)
	enrich(tree, "")
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// NewerAt lists the places at which a document still has what Newer gave it.
func NewerAt(t testing.TB, doc []byte) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(enriched(t, treeOf(t, doc), "", map[string]bool{})))
}

// stored reads a document as it is.
func (b Backend) stored(t testing.TB, dsn, id string) (out []byte) {
	t.Helper()
	b.Edit(t, dsn, id, func(doc []byte) []byte {
		out = slices.Clone(doc)
		return nil
	})
	return out
}

// newer has the stored document be one of a newer version, and returns where.
func (b Backend) newer(t testing.TB, dsn, id string) (at []string) {
	t.Helper()
	b.Edit(t, dsn, id, func(doc []byte) []byte {
		doc = Newer(t, doc)
		at = NewerAt(t, doc)
		return doc
	})
	return at
}

// fullStatus is a status with something in every field.
func fullStatus(id string) record.Status {
	at := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	return record.Status{
		NodeQuarantined: record.Quarantined, QuarantineFinishTimestamp: &at, Session: id,
		Faults: []record.Fault{{Key: "a"}, {Key: "b"}},
		QuarantineVerdict: &record.Verdict{
			Reason: record.Matched, RuleSets: []string{"built-in"}, Machine: &record.NodeIdentity{UID: "u"}, At: at,
			Effects: record.Effects{Cordon: true, Taints: []record.Taint{{Key: "k", Effect: "NoSchedule"}, {Key: "k", Effect: "NoExecute"}}, Labels: []record.Label{{Key: "l"}}},
		},
		UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionInProgress, Message: "1 pod"},
		Remediation: &record.Remediation{
			Cause: id, Waiting: &record.Wait{Reason: "Budget", Since: at, Until: &at},
			Attempts: []record.Attempt{
				{Ordinal: 1, Name: "one", State: "Failed", SubmittedAt: at, FinishedAt: &at, Outputs: map[string]string{"a.b": "c"}},
				{Ordinal: 2, Name: "two", State: "Running", SubmittedAt: at, Steps: []record.RepairStep{
					{Name: "first", State: "Succeeded", Inputs: []record.RepairValue{{Name: "i"}}, Outputs: []record.RepairValue{{Name: "o"}}},
					{Name: "second", State: "Running", StartedAt: &at},
				}},
			},
		},
	}
}

// writes are what each service changes in such a status; none removes anything.
var writes = []struct {
	writer record.Writer
	edit   func(*record.Status)
}{
	{record.FaultQuarantine, func(st *record.Status) {
		st.Faults = slices.Clone(st.Faults)
		st.Faults[1].ClearedTimestamp, st.Faults[1].ClearedBy = st.QuarantineFinishTimestamp, "x"
		v := *st.QuarantineVerdict
		v.Detail = "changed"
		st.QuarantineVerdict = &v
	}},
	{record.NodeDrainer, func(st *record.Status) {
		st.UserPodsEvictionStatus.Status, st.DrainFinishTimestamp = record.EvictionSucceeded, st.QuarantineFinishTimestamp
	}},
	{record.FaultRemediation, func(st *record.Status) {
		rem := *st.Remediation
		rem.Attempts = append(slices.Clone(rem.Attempts), record.Attempt{Ordinal: 3, Name: "three"})
		rem.Attempts[1].State = "Succeeded"
		rem.Attempts[1].Steps = append(slices.Clone(rem.Attempts[1].Steps), record.RepairStep{Name: "third"})
		rem.Attempts[1].Steps[1].State, rem.Waiting.Message = "Succeeded", "still"
		st.Remediation = &rem
	}},
}

// newerUpdated: updates of every service, alone, in batches of every size and many at
// once, leave what they do not know where it was.
func newerUpdated(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	sizes := []int{1, 3, 70}
	if b.Slow {
		sizes = []int{1, 3}
	}
	var batches [][]record.Record
	kept := map[string][]string{}
	for _, n := range sizes {
		records := faults(n)
		for i := range records {
			records[i].Event.Metadata = map[string]string{"a.b": "c"}
			records[i].Event.DrainOverrides = &record.Override{Skip: true}
			records[i].Status = fullStatus(records[i].ID)
		}
		for _, r := range Seed(t, s, records...) {
			kept[r.ID] = b.newer(t, dsn, r.ID)
		}
		batches = append(batches, records)
	}
	if n := len(kept[batches[0][0].ID]); n < 22 {
		t.Fatalf("only %d objects are of a newer version", n)
	}
	for _, w := range writes {
		inParallel(len(batches), func(i int) {
			var changes []store.Change
			for _, r := range batches[i] {
				now := MustGet(t, s, r.ID)
				w.edit(&now.Status)
				now.Status.Extra = nil // whatever a service makes of a status
				changes = append(changes, store.Change{ID: r.ID, Revision: now.Revision, Status: now.Status})
			}
			after, err := s.Update(within(t), w.writer, changes)
			if err != nil {
				t.Errorf("%s: %v", w.writer, err)
			}
			for _, r := range after {
				b.checkUnchanged(t, dsn, r, kept[r.ID])
			}
		})
	}
	inParallel(len(batches), func(i int) { // what fault-quarantine alone may set
		r := MustGet(t, s, batches[i][0].ID)
		expire := r.CreatedAt.Add(record.Retention)
		after, err := s.Update(within(t), record.FaultQuarantine, []store.Change{{ID: r.ID, Revision: r.Revision, Status: r.Status, ExpireAt: &expire}})
		if err != nil {
			t.Fatal(err)
		}
		b.checkUnchanged(t, dsn, after[0], kept[r.ID])
	})
}

// checkUnchanged compares what is stored, and what the store returned, with what was there.
func (b Backend) checkUnchanged(t testing.TB, dsn string, after record.Record, want []string) {
	t.Helper()
	doc := b.stored(t, dsn, after.ID)
	if diff := cmp.Diff(want, NewerAt(t, doc)); diff != "" {
		t.Errorf("what the stored record keeps (-before +after):\n%s", diff)
	}
	returned, err := record.AppendJSON(nil, after)
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(treeOf(t, returned), treeOf(t, doc)); diff != "" {
		t.Errorf("the store (-returned +stored):\n%s", diff)
	}
}

// newerAppended: a record that came from a newer version is appended with what this one
// does not know, is read back with it by everybody, and is the same when it comes again
// through a program that knows less, or more.
func newerAppended(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	r := Record("n", func(r *record.Record) {
		r.Event.DrainOverrides = &record.Override{Skip: true}
		r.Event.RecommendedAction, r.Event.ProcessingStrategy, r.MinVersion = "NEWER_ACTION", "NEWER_STRATEGY", 3
		r.Event.Unread = []byte{0x98, 0x06, 0x01}
	})
	doc, err := record.AppendJSON(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	came, err := record.Decode(Newer(t, doc))
	if err != nil {
		t.Fatal(err)
	}
	came.Status.Extra = nil // no appender's to give
	f := openFeed(t, s, "c", record.AllHealthEventInserts())
	MustAppend(t, s, came)
	want := []string{"", ".healthevent", ".healthevent.drainoverrides", ".healthevent.entitiesimpacted[0]", ".node"}
	if diff := cmp.Diff(want, NewerAt(t, b.stored(t, dsn, r.ID))); diff != "" {
		t.Errorf("what is stored (-want +got):\n%s", diff)
	}
	came.Revision, came.Append = 0, MustGet(t, s, r.ID).Append
	read := map[string]record.Record{"Get": MustGet(t, s, r.ID), "the feed": Receive(t, f, 1)[0]}
	list, err := s.List(within(t), store.Query{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d records, %v", len(list), err)
	}
	read["List"] = list[0]
	for how, got := range read {
		if diff := cmp.Diff(came, got); diff != "" {
			t.Errorf("%s (-appended +read):\n%s", how, diff)
		}
	}
	known := came
	known.Extra, known.Event.Extra, known.Event.Unread = nil, nil, nil
	for how, again := range map[string]record.Record{"the same": came, "of a program that knows less": known} {
		results, err := Open(t, dsn, storeopen.Options{}).Append(within(t), []record.Record{again})
		if err != nil || results[0] != store.Duplicate {
			t.Errorf("%s again: %v, %v", how, results, err)
		}
	}
}

// newerMaintenance: documents of maintenances and of providers keep what this version
// does not know.
func newerMaintenance(t *testing.T, b Backend) {
	dsn, m := maintenances(t, b)
	e := Maintenance("aws", "m")
	p := maintenance.Provider{CSP: "aws", Unreachable: &maintenance.Unreachable{NodeName: "n", Reported: e.Healed, Waiting: e.Waiting}}
	mustSave(t, m, store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{e}, Provider: &p})
	kept := map[string][]string{"aws/m": b.newer(t, dsn, "aws/m"), "aws": b.newer(t, dsn, "aws")}
	list, err := m.Unfinished(within(t), "aws")
	if err != nil || len(list) != 1 {
		t.Fatalf("%d maintenances, %v", len(list), err)
	}
	if p, err = m.Provider(within(t), "aws"); err != nil {
		t.Fatal(err)
	}
	list[0].Description, p.Checkpoint = "changed", "changed"
	mustSave(t, m, store.MaintenanceUpdate{CSP: "aws", Events: list, Provider: &p})
	for id, want := range kept {
		doc := b.stored(t, dsn, id)
		if diff := cmp.Diff(want, NewerAt(t, doc)); diff != "" || !strings.Contains(string(doc), "changed") {
			t.Errorf("what %s keeps (-before +after):\n%s\n%s", id, diff, doc)
		}
	}
}
