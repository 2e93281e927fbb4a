package reconciler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// slow is a store that takes a while for each changed record, as one does that is
// milliseconds away, and a caller who has ten seconds.
type slow struct {
	store.Store
	each time.Duration
}

func (s slow) Update(ctx context.Context, w record.Writer, changes []store.Change) ([]record.Record, error) {
	if d := time.Duration(len(changes)) * s.each; d > 10*time.Second {
		return nil, fmt.Errorf("updating %d records takes %s: %w", len(changes), d, context.DeadlineExceeded)
	}
	return s.Store.Update(ctx, w, changes)
}

// noise are n events of a node that no rule matches.
func noise(n int) []record.Record {
	out := make([]record.Record, n)
	for i := range out {
		out[i] = event(uint64(i+1), false, "13", fmt.Sprintf("GPU-%d", i%8))
		out[i].Event.IsFatal = false
	}
	return out
}

// piles evaluates a pile with a fatal fault in it, in a store that takes a while for
// each, and returns how many looks it took.
func piles(t *testing.T, s store.Store, n int, each time.Duration) int {
	t.Helper()
	nodes := newRacks("n1", "n2")
	read := &counting{Store: slow{s, each}}
	d := newReconciler(t, read, nodes)
	pile := noise(n)
	fatal := event(uint64(n/2), false, "79", "GPU-1")
	pile[n/2] = fatal
	for part := range slices.Chunk(pile, 1000) {
		storetest.MustAppend(t, s, part...)
	}
	looks := 1
	for err := d.Handle(t.Context(), "n1"); err != nil; looks++ {
		if _, _, parked := retry.AsPark(err); !parked || looks > n {
			t.Fatalf("look %d: %v", looks, err)
		}
		if looks == 1 { // the other nodes are not held up by it
			storetest.MustAppend(t, s, faultOf("n2"))
			if err := d.Handle(t.Context(), "n2"); err != nil || clean(nodes, "n2") {
				t.Errorf("another node is not quarantined meanwhile: %v", err)
			}
		}
		err = d.Handle(t.Context(), "n1")
	}
	if r := storetest.MustGet(t, s, fatal.ID); r.Reason() != record.Matched || clean(nodes, "n1") {
		t.Errorf("the fatal fault in the pile is %q", r.Reason())
	}
	left, err := s.List(t.Context(), store.Query{Selector: record.BacklogOfNode("n1")})
	if err != nil || len(left) > 0 {
		t.Errorf("%d records are not judged, %v", len(left), err)
	}
	if read.read > n+1500 {
		t.Errorf("%d records were read for a pile of %d", read.read, n)
	}
	return looks
}

// TestBacklogIsEvaluated: a pile of records that no single transaction takes in the
// time of a lease is evaluated all the same, look by look.
func TestBacklogIsEvaluated(t *testing.T) {
	_, dsn := pgtest.Database(t)
	if looks := piles(t, storetest.Open(t, dsn, storeopen.Options{}), 2001, 6*time.Millisecond); looks < 3 {
		t.Errorf("one look took more than a thousand: %d looks", looks)
	}
}

// TestLargeBacklogIsEvaluated: the same with a backlog of one hour.
func TestLargeBacklogIsEvaluated(t *testing.T) {
	testkit.Long(t, "TestBacklogIsEvaluated judges 2,001 records in the same way")
	_, dsn := pgtest.Database(t)
	piles(t, storetest.Open(t, dsn, storeopen.Options{}), 20_000, 3*time.Millisecond)
}

// TestRecoveriesBeyondOnePassCount: a fault is evaluated in an earlier look than the
// recovery that has ended it; no node is quarantined for it.
func TestRecoveriesBeyondOnePassCount(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	storetest.MustAppend(t, s, noise(1500)...)
	storetest.MustAppend(t, s, event(2000, true, "", "GPU-1"))
	if _, _, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked {
		t.Fatal("one look judged all")
	}
	if r := storetest.MustGet(t, s, f.ID); r.Reason() != record.Superseded || nodes.patches > 0 {
		t.Errorf("the fault is %q, and the node was patched %d times", r.Reason(), nodes.patches)
	}
}

// TestFaultsThatWaitHoldNothingUp: more faults than one look takes cannot be
// evaluated; those behind them are.
func TestFaultsThatWaitHoldNothingUp(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	unsure := noise(1200)
	for i := range unsure {
		unsure[i].Node, unsure[i].CreatedAt, unsure[i].SeqEpoch = record.NodeIdentity{}, time.Unix(0, 0), "other"
	}
	storetest.MustAppend(t, s, unsure...)
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	for range 4 {
		if _, _, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked {
			t.Fatal("the node is not parked")
		}
	}
	if r := storetest.MustGet(t, s, f.ID); r.Reason() != record.Matched || !nodes.node.Spec.Unschedulable {
		t.Errorf("the fault behind them is %q", r.Reason())
	}
}

// stopped is a store that fails after some batches.
type stopped struct {
	store.Store
	left int
}

var errStopped = errors.New("stopped between two batches")

func (s *stopped) Update(ctx context.Context, w record.Writer, changes []store.Change) ([]record.Record, error) {
	if s.left--; s.left < 0 {
		return nil, errStopped
	}
	return s.Store.Update(ctx, w, changes)
}

// TestStoppedBetweenBatches: a session of more faults than one batch holds is
// ended by one recovery; a crash after any batch changes nothing of the end.
func TestStoppedBetweenBatches(t *testing.T) {
	const faults, batches = 600, 2
	for stop := range batches + 1 {
		s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
		d := newReconciler(t, s, nodes)
		var all []record.Record
		for i := range faults {
			all = append(all, event(uint64(i+1), false, "79", fmt.Sprintf("GPU-%d", i)))
		}
		for part := range slices.Chunk(all, faults/2) {
			storetest.MustAppend(t, s, part...)
			handle(t, d)
		}
		recovery := event(faults+1, true, "")
		storetest.MustAppend(t, s, recovery)
		d.Store = &stopped{s, stop}
		if err := d.Handle(t.Context(), "n1"); stop < batches && !errors.Is(err, errStopped) {
			t.Fatalf("stopped after %d batches: %v", stop, err)
		}
		if stop < batches && !nodes.node.Spec.Unschedulable {
			t.Errorf("released after %d batches", stop)
		}
		d.Store = s
		handle(t, d)
		r := storetest.MustGet(t, s, recovery.ID)
		if r.Reason() != record.Cleared || r.Status.NodeQuarantined != record.UnQuarantined || nodes.node.Spec.Unschedulable {
			t.Errorf("stopped after %d batches: the recovery is %s %s", stop, r.Reason(), r.Status.NodeQuarantined)
		}
	}
}

// counting counts the records that lists return.
type counting struct {
	store.Store
	read int
	// most is how long the documents of one list were.
	most int
}

func (c *counting) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	list, err := c.Store.List(ctx, q)
	c.read += len(list)
	size := 0
	for _, r := range list {
		if b, err := json.Marshal(r); err == nil {
			size += len(b)
		}
	}
	c.most = max(c.most, size)
	return list, err
}

// TestAPileOfLargeRecordsIsReadInPages: a look does not take more into memory than
// a page, however large the records of the pile are.
func TestAPileOfLargeRecordsIsReadInPages(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	counter := &counting{Store: s}
	d := newReconciler(t, counter, nodes)
	pile := noise(60)
	for i := range pile {
		pile[i].Event.Message = strings.Repeat("x", 512<<10)
	}
	f := event(uint64(len(pile)+1), false, "79", "GPU-1")
	storetest.MustAppend(t, s, append(pile, f)...)
	looks := 0
	for parked := true; parked; looks++ {
		_, _, parked = retry.AsPark(d.Handle(t.Context(), "n1"))
	}
	if r := storetest.MustGet(t, s, f.ID); r.Reason() != record.Matched || !nodes.node.Spec.Unschedulable {
		t.Errorf("the fault behind them is %q", r.Reason())
	}
	if counter.most > store.PageBytes+1<<20 || looks < 4 {
		t.Errorf("%d looks, and one list of %d bytes", looks, counter.most)
	}
}

// TestPassBoundsRecoveries: a node whose publisher has reported healthy for
// weeks is looked at without reading them, and a late fault is still
// superseded by the recovery that came before it.
func TestPassBoundsRecoveries(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	const weeks = 1000
	for i := 0; i < weeks; i += 1000 {
		var part []record.Record
		for k := range 1000 {
			part = append(part, event(uint64(100+i+k), true, "", fmt.Sprintf("GPU-%d", k%8)))
		}
		storetest.MustAppend(t, s, part...)
		for { // until all are evaluated
			if _, _, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked {
				break
			}
		}
	}
	counter := &counting{Store: s}
	d.Store = counter
	look := func(r record.Record) (read int, allocated uint64) {
		var before, after runtime.MemStats
		storetest.MustAppend(t, s, r)
		counter.read = 0
		runtime.ReadMemStats(&before)
		handle(t, d)
		runtime.ReadMemStats(&after)
		return counter.read, after.TotalAlloc - before.TotalAlloc
	}
	for name, r := range map[string]record.Record{
		"a recovery": event(weeks+200, true, "", "GPU-1"), "a fault": event(weeks+201, false, "13", "GPU-1"),
	} {
		r.Event.IsFatal = false
		if read, allocated := look(r); read > 10 || allocated > 4<<20 {
			t.Errorf("%s: a look read %d records and allocated %d KiB", name, read, allocated>>10)
		}
	}
	late := event(7, false, "79", "GPU-3")
	look(late)
	if r := storetest.MustGet(t, s, late.ID); r.Reason() != record.Superseded || nodes.node.Spec.Unschedulable {
		t.Errorf("the late fault is %q", r.Reason())
	}
}
