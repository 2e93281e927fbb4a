package reconciler_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// claim has a uid claim the bench's node.
func (b *bench) claim(uid string) {
	b.patchNode(`{"metadata":{"annotations":{"` + nodemark.RepairAnnotation + `":"` + uid + `"}}}`)
}

// pollClaims has the claims of the bench's node looked at.
func (b *bench) pollClaims(c *reconciler.Claims) {
	b.t.Helper()
	seen := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := seen.Add(b.liveNode()); err != nil {
		b.t.Fatal(err)
	}
	c.Nodes = listers.NewNodeLister(seen)
	if err := c.Poll(b.t.Context()); err != nil {
		b.t.Logf("Look: %v", err)
	}
}

func (b *bench) claims() *reconciler.Claims {
	b.t.Helper()
	c, err := reconciler.NewClaims(b.Reconciler, nil, decision.DefaultOrphanedAfter)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// TestAClaimWithoutItsObjectIsDropped: first it is waited for, which the record
// reports, and then the repair goes on.
func TestAClaimWithoutItsObjectIsDropped(t *testing.T) {
	b := newBench(t)
	b.claim("an-object-whose-finalizer-was-stripped")
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitClaim)
	w := b.record("r1").Status.Remediation.Waiting
	if w == nil || w.Reason != string(decision.WaitClaim) || !strings.Contains(w.Message, "finalizer-was-stripped") || w.Until == nil {
		t.Errorf("the record says that it waits for %+v", w)
	}
	c := b.claims()
	b.pollClaims(c)
	if b.liveNode().Annotations[nodemark.RepairAnnotation] == "" {
		t.Fatal("the claim is dropped at the first look")
	}
	b.clock.Step(decision.DefaultOrphanedAfter)
	b.pollClaims(c)
	if uid := b.liveNode().Annotations[nodemark.RepairAnnotation]; uid != "" {
		t.Fatalf("the claim of %s stays", uid)
	}
	if !slices.ContainsFunc(b.events(), func(e string) bool { return strings.HasPrefix(e, reconciler.EventClaimOrphaned+" x1") }) {
		t.Errorf("events %q", b.events())
	}
	b.parks(decision.WaitObject)
	if w := b.record("r1").Status.Remediation.Waiting; w != nil {
		t.Errorf("the record still waits for %+v", w)
	}
}

// TestAClaimIsKept: while its object is there, regardless of who made it, and while that
// can not be read. One that takes too long is a person's.
func TestAClaimIsKept(t *testing.T) {
	b := newBench(t)
	o, err := b.cluster.Dynamic().Resource(rebootNodes).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "janitor.dgxc.nvidia.com/v1alpha1", "kind": "RebootNode",
		"metadata": map[string]any{"name": "by-hand-" + b.node}, "spec": map[string]any{"nodeName": b.node},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.claim(string(o.GetUID()))
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitClaim)
	c := b.claims()
	broken := &reconciler.Reconciler{Repairs: b.Repairs, Clock: b.clock, Log: b.Log}
	broken.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/terminatenodes") {
			return &http.Response{StatusCode: http.StatusInternalServerError, Body: http.NoBody, Request: r}, nil
		}
		return nil, nil
	})
	blind, err := reconciler.NewClaims(broken, nil, decision.DefaultOrphanedAfter)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.pollClaims(c)
		b.clock.Step(decision.DefaultOrphanedAfter)
	}
	if err := b.cluster.Dynamic().Resource(rebootNodes).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.pollClaims(blind)
		b.clock.Step(decision.DefaultOrphanedAfter)
	}
	if b.liveNode().Annotations[nodemark.RepairAnnotation] != string(o.GetUID()) {
		t.Fatal("the claim is dropped")
	}
	b.parks(decision.WaitClaim)
	b.clock.Step(time.Hour)
	b.settles()
	b.shows("r1", "false ManualInterventionRequired(ClaimStuck) label=remediation-failed")
}
