package reconciler_test

import (
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestRepeatOffenderRequiresRelease: a monitor's recovery does not release it, known from
// the Node alone or from the record, also after a restart; an uncordon does, and leaves
// the mark.
func TestRepeatOffenderRequiresRelease(t *testing.T) {
	for name, reported := range map[string]struct{ node, record bool }{"the Node": {node: true}, "the record": {record: true}} {
		t.Run(name, func(t *testing.T) {
			d, nodes, f := quarantined(t)
			nodes.node.Labels[nodemark.RepeatOffenderLabel] = nodemark.RepeatOffenderTrue
			note := nodemark.RepeatOffender{}
			if reported.node {
				note.RequiresRelease = nodemark.Session(nodes.node)
			}
			nodes.node.Annotations[nodemark.RepeatOffenderAnnotation] = note.Text()
			if reported.record {
				r, err := d.Store.Get(t.Context(), f.ID)
				if err != nil {
					t.Fatal(err)
				}
				r.Status.FaultRemediated = new(bool)
				r.Status.Remediation = &record.Remediation{Outcome: record.OutcomeNeedsHuman, Reason: record.RepeatOffender}
				if _, err := d.Store.Update(t.Context(), record.FaultRemediation, []store.Change{{ID: r.ID, Revision: r.Revision, Status: r.Status}}); err != nil {
					t.Fatal(err)
				}
			}
			storetest.MustAppend(t, d.Store, event(2, true, ""))
			for range 2 {
				if _, why, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked || why != "RepeatOffenderKept" {
					t.Errorf("parked %v: %q", parked, why)
				}
				if !nodes.node.Spec.Unschedulable || !slices.Contains(nodes.notes, "RepeatOffenderKept") {
					t.Errorf("released, or not told: %v", nodes.notes)
				}
				d = newReconciler(t, d.Store, nodes) // started again
			}
			uncordon(nodes.node, "alice")
			handle(t, d)
			if nodemark.HasMarks(nodes.node) || nodes.node.Labels[nodemark.RepeatOffenderLabel] != nodemark.RepeatOffenderTrue {
				t.Errorf("marks after the release: %v %v", nodes.node.Labels, nodes.node.Annotations)
			}
		})
	}
}
