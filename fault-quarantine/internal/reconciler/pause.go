package reconciler

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/pause"
)

// adds reports whether marking a Node would keep pods away that are not kept away
// now: a cordon or a taint more.
func (rc *Reconciler) adds(node *corev1.Node, desired marks.Desired, now time.Time) bool {
	after := node.DeepCopy()
	rc.apply(after, desired, now)
	return after.Spec.Unschedulable && !node.Spec.Unschedulable || slices.ContainsFunc(after.Spec.Taints, func(t corev1.Taint) bool {
		return !slices.ContainsFunc(node.Spec.Taints, func(x corev1.Taint) bool { return x.MatchTaint(&t) && x.Value == t.Value })
	})
}

// PauseSource enqueues, whenever the emergency stop has changed, every node whose faults are
// held or open.
func (rc *Reconciler) PauseSource(b *pause.Switch) func(context.Context, func(string)) error {
	changed := make(chan struct{}, 1)
	again := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	b.OnChange(again)
	return func(ctx context.Context, enqueue func(string)) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			for _, s := range []record.Selector{evaluatedAs(record.BacklogOfNode(""), record.Held), record.OpenOfNode("")} {
				err := rc.pages(ctx, s, func(page []record.Record) error {
					for _, r := range page {
						enqueue(r.Event.NodeName)
					}
					return nil
				})
				if err != nil {
					again() // the loop calls the source again; the change must not be lost
					return err
				}
			}
		}
	}
}
