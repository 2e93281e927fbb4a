package reconciler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// large is a fault of n GPUs with long names; about n KiB, stored.
func large(seq uint64, n int) record.Record {
	var gpus []string
	for i := range n {
		gpus = append(gpus, fmt.Sprintf("GPU-%d-%s", i, strings.Repeat("x", 400)))
	}
	return event(seq, false, "79", gpus...)
}

// settleNode handles the node until it waits for nothing but the world.
func settleNode(t *testing.T, d *reconciler.Reconciler) {
	t.Helper()
	for range 200 {
		err := d.Handle(t.Context(), "n1")
		if err == nil {
			return
		}
		pause, _, parked := retry.AsPark(err)
		if _, _, waits := retry.AsWait(err); !waits && !parked {
			t.Fatal(err)
		}
		if parked && pause > time.Second {
			return
		}
	}
	t.Fatal("the node is never done")
}

// stay lets a node with many large open faults have some entries of each cleared,
// then all of some, then all by a person, and returns what became of the
// records, and of the node, after each step.
func stay(t *testing.T, whole int) (reported []string) {
	t.Helper()
	const faults, gpus = 200, 50
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	d.SetMaxFullBytes(whole)
	var all []record.Record
	for i := range faults {
		all = append(all, large(uint64(i+1), gpus))
	}
	for part := range slices.Chunk(all, 50) {
		storetest.MustAppend(t, s, part...)
	}
	settleNode(t, d)
	held, condensed, err := d.Memory(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	if whole < 1<<30 && (held > 2*whole+faults*1500 || condensed < faults/2) {
		t.Errorf("a look holds %d bytes of open faults, %d of %d in brief; want %d whole, and 1,500 bytes of each other", held, condensed, faults, whole)
	}
	report := func(step string) {
		t.Helper()
		settleNode(t, d)
		list, err := s.List(t.Context(), store.Query{Selector: record.Selector{Name: "all"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range list {
			cleared := map[string]int{}
			for j, f := range r.Status.Faults {
				if f.Key == "" || r.IsFault() && f.Key != all[i].Status.Faults[j].Key {
					t.Fatalf("%s: fault %d has the key %q in place %d", step, i, f.Key, j)
				}
				if f.ClearedTimestamp != nil {
					by := slices.IndexFunc(list, func(r record.Record) bool { return r.ID == f.ClearedBy })
					cleared[fmt.Sprint(by, " ", f.ClearedBy == record.ClearedManual)]++
				}
			}
			reported = append(reported, fmt.Sprint(step, " ", i, " ", r.Reason(), " ", r.Status.NodeQuarantined, " ", len(r.Status.Faults), " ", cleared,
				" ", r.Status.QuarantineFinishTimestamp != nil, " ", r.ExpireAt != nil))
		}
		reported = append(reported, fmt.Sprint(step, " ", nodemark.Session(nodes.node) != "", " ", nodes.node.Spec.Unschedulable))
	}
	for i := range all {
		all[i] = storetest.MustGet(t, s, all[i].ID)
	}
	report("open")
	names := func(gpus ...int) (out []string) {
		for _, g := range gpus {
			out = append(out, all[0].Event.EntitiesImpacted[g].EntityValue)
		}
		return out
	}
	storetest.MustAppend(t, s, event(faults+1, true, "", names(1, 2)...), event(faults+2, true, "", names(2, 3)...))
	report("some of each")
	late := large(faults+3, 2)
	storetest.MustAppend(t, s, late)
	settleNode(t, d)
	all = append(all, record.Record{}, record.Record{}, storetest.MustGet(t, s, late.ID))
	report("one more")
	uncordon(nodes.node, "alice")
	report("by hand")
	return reported
}

// TestCondensedFaultsEndAlike: what becomes of open faults does not depend on how
// many of them a look holds whole; and how much it holds does not grow with what
// they name.
func TestCondensedFaultsEndAlike(t *testing.T) {
	testkit.Long(t, "TestOneRecoveryEndsManyCondensedFaults")
	want := stay(t, 1<<30)
	if !slices.ContainsFunc(want, func(line string) bool { return strings.HasPrefix(line, "by hand false false") }) {
		t.Errorf("the node was not released: %s", want[len(want)-1])
	}
	if diff := cmp.Diff(want, stay(t, 64<<10)); diff != "" {
		t.Errorf("(-whole +in brief):\n%s", diff)
	}
}

// TestOneRecoveryEndsManyCondensedFaults: one recovery ends them all, and the node is released.
func TestOneRecoveryEndsManyCondensedFaults(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	d.SetMaxFullBytes(1)
	for i := range 10 {
		var part []record.Record
		for j := range 20 {
			part = append(part, large(uint64(20*i+j+1), 50))
		}
		storetest.MustAppend(t, s, part...)
	}
	settleNode(t, d)
	if nodemark.Session(nodes.node) == "" {
		t.Fatal("the node is not in quarantine")
	}
	storetest.MustAppend(t, s, event(1000, true, ""))
	settleNode(t, d)
	open, err := s.List(t.Context(), store.Query{Selector: record.OpenOfNode("n1")})
	if err != nil || len(open) > 0 || nodemark.HasMarks(nodes.node) {
		t.Errorf("%d faults are open, %v; the node bears marks: %v", len(open), err, nodemark.HasMarks(nodes.node))
	}
}
