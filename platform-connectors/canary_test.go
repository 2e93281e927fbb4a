package main

import (
	"testing"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestCanaryEndToEnd: a canary goes from the Node's annotation through the ingest endpoint to
// the store, and changes nothing.
func TestCanaryEndToEnd(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	s.start()
	id := uuid.Must(uuid.NewV7()).String()
	patch := []byte(`{"metadata":{"annotations":{"` + nodemark.CanaryAnnotation + `":"` + id + `"}}}`)
	_, err := s.cluster.Client().CoreV1().Nodes().Patch(t.Context(), nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := awaitStored(t, s.records(), 1)[0]
	if r.ID != id || r.Acts() || !r.Event.IsHealthy || r.ExpireAt == nil || r.Event.NodeName != nodeName {
		t.Errorf("it is stored as %+v", r)
	}
	before := s.conditions()
	s.send(event("a", 1)) // what comes behind shows that the other was passed
	s.awaitCondition(check, faulty(entry("a", 1)))
	if after := s.conditions(); len(after) != len(before)+1 {
		t.Errorf("conditions %v, before %v", after, before)
	}
	if all := awaitStored(t, s.records(), 2); len(all) != 2 || all[1].Event.ProcessingStrategy != record.Process {
		t.Errorf("%d records", len(all))
	}
}
