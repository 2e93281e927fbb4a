package reconciler_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// calls notes what the reconciler asks the API server from now on.
func (b *bench) calls() func() []string {
	var mu sync.Mutex
	var calls []string
	b.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		kind := slices.IndexFunc(part, func(p string) bool { return p == "nodes" || p == "pods" || p == "rebootnodes" })
		calls = append(calls, r.Method+" "+part[max(kind, 0)])
		return nil, nil
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(calls)
	}
}

// TestNoRequestsBeforeTheDrain: a node that goes into quarantine is enqueued, and
// nothing can be decided yet.
func TestNoRequestsBeforeTheDrain(t *testing.T) {
	b := newBench(t)
	b.undrained("r1", record.ActionRestartVM)
	calls := b.calls()
	b.parks(decision.WaitDrain)
	if got := calls(); len(got) > 0 {
		t.Errorf("calls %v, want none", got)
	}
	b.update(record.NodeDrainer, "r1", func(s *record.Status) { s.UserPodsEvictionStatus.Status = record.EvictionSucceeded })
	b.parks(decision.WaitObject)
}

// TestRepairMakesFourAPIRequests: the Node and its pods are read once,
// the Node is marked, the object is created; what all that shows is not asked
// for again. The reconciler's own status updates enqueue no node, those of others do.
func TestRepairMakesFourAPIRequests(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	calls := b.calls()
	b.parks(decision.WaitObject)
	if got, want := calls(), []string{"GET nodes", "GET pods", "PATCH nodes", "POST rebootnodes"}; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	if a := b.record("r1").Status.Remediation.Attempts[0]; a.UID != string(b.onlyObject().GetUID()) {
		t.Errorf("the record names the uid %q", a.UID)
	}
	if key := b.key(b.record("r1")); key != "" {
		t.Errorf("the reconciler's own stamp enqueues %q", key)
	}
	b.update(record.NodeDrainer, "r1", func(s *record.Status) { s.UserPodsEvictionStatus.Message = "told by the drainer" })
	if key := b.key(b.record("r1")); key != b.node {
		t.Errorf("another service's stamp enqueues %q, want the node", key)
	}
}

// TestACachedNodeIsEnoughForTheFirstRepair: it is not read once more; and of a Node that
// has changed since, in whatever was decided on, nothing is repaired.
func TestACachedNodeIsEnoughForTheFirstRepair(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.update(record.NodeDrainer, "r1", func(s *record.Status) { at := b.clock.Now(); s.DrainFinishTimestamp = &at })
	cached := b.liveNode()
	b.Cached = func(string) *corev1.Node { return cached }
	b.patchNode(`{"spec":{"unschedulable":false}}`)
	calls := b.calls()
	if _, _, waits := retry.AsWait(b.Handle(t.Context(), b.node)); !waits {
		t.Error("no lost race")
	}
	if got, want := calls(), []string{"PATCH nodes"}; !slices.Equal(got, want) || len(b.objects()) != 0 {
		t.Errorf("calls %v, want %v; %d objects", got, want, len(b.objects()))
	}
	b.patchNode(`{"spec":{"unschedulable":true}}`)
	calls = b.calls()
	b.parks(decision.WaitObject)
	if got, want := calls(), []string{"GET nodes", "GET rebootnodes", "PATCH nodes", "POST rebootnodes"}; !slices.Equal(got, want) {
		t.Errorf("once more, calls %v, want %v", got, want)
	}
}
