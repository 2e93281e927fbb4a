package sqlstore

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

func waiting(ctx context.Context, changes int) *jointUpdate {
	return &jointUpdate{ctx: ctx, changes: make([]store.Change, changes), done: make(chan struct{})}
}

// A group has so many changes at most, in the order in which they came, and none of a
// caller who left. When nobody waits, the next caller starts a new group.
func TestGroupsAreBounded(t *testing.T) {
	j := joint{busy: true}
	for range 10 {
		j.waiting = append(j.waiting, waiting(t.Context(), jointChanges), waiting(t.Context(), jointChanges))
		j.waiting[len(j.waiting)-1].fate.Store(left)
	}
	j.waiting = append(j.waiting, waiting(t.Context(), 1))
	came := slices.Clone(j.waiting)
	var sizes []int
	var order []*jointUpdate
	for group := j.next(); len(group) > 0; group = j.next() {
		n := 0
		for _, u := range group {
			n += len(u.changes)
			order = append(order, u)
			if !errors.Is(u.err, errAlone) {
				t.Errorf("before it is decided, an update has the outcome %v", u.err)
			}
		}
		sizes = append(sizes, n)
	}
	if diff := cmp.Diff([]int{256, 256, 129}, sizes); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	for i, u := range order {
		if u != came[2*i] {
			t.Fatalf("update %d came at another place", i)
		}
	}
	if j.busy || j.waiting != nil {
		t.Error("a group is under way, of nobody")
	}
}

// TestFate: either the caller is informed that nothing was applied, or the update is in
// the statement.
func TestFate(t *testing.T) {
	u := waiting(t.Context(), 1)
	if !u.bind() || !errors.Is(u.err, errUnknown) || u.fate.CompareAndSwap(waits, left) {
		t.Errorf("an update that is in the statement can be left, or has the outcome %v", u.err)
	}
	u = waiting(t.Context(), 1)
	if u.fate.Store(left); u.bind() || errors.Is(u.err, errUnknown) {
		t.Error("an update whose caller left is in the statement")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u = waiting(ctx, 1)
	if u.bind() || !errors.Is(u.err, context.Canceled) {
		t.Errorf("an update whose time is over has the outcome %v", u.err)
	}
}

// Of two updates of a group that share a record the second is not written with the
// first, whatever else it is about.
func TestARecordIsChangedOnceInAGroup(t *testing.T) {
	found := map[string][]byte{}
	for _, id := range []string{"a", "b", "c"} {
		doc, err := record.AppendJSON(nil, record.Record{ID: id, Event: record.Event{ProcessingStrategy: record.Process}})
		if err != nil {
			t.Fatal(err)
		}
		found[id] = doc
	}
	first := &jointUpdate{ctx: t.Context(), writer: record.NodeDrainer, changes: []store.Change{{ID: "a"}, {ID: "b"}}, err: errAlone}
	second := &jointUpdate{ctx: t.Context(), writer: record.NodeDrainer, changes: []store.Change{{ID: "b"}, {ID: "c"}}, err: errAlone}
	first.decide(found)
	second.decide(found)
	if len(first.rows) != 2 || len(second.rows) != 0 || !errors.Is(second.err, errAlone) {
		t.Errorf("written are %d and %d records; the second: %v", len(first.rows), len(second.rows), second.err)
	}
}
