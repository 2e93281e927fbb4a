// Package reconciler reconciles the remediation of one node. Handle observes, decides, creates
// repair objects, updates the status of records, and waits with the Node marked, each in the
// file of that name; facts.go has what one pass leaves for the next.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Reconciler repairs nodes, one step at a time.
type Reconciler struct {
	Records *consumer.Records
	Cluster *kube.Client
	Repairs action.Policy
	Policy  decision.Policy
	// Cached is the Node that a cache has, nil where it has none; nil reads all Nodes from
	// the API server. See decision.Needs.
	Cached func(name string) *corev1.Node
	// Eviction is the drainer's policy: which pods had to go.
	Eviction eviction.Policy
	// DryRun decides and logs, and writes nothing.
	DryRun  bool
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *Metrics
	// Pause is the emergency stop; nil is never on.
	Pause *pause.Switch
	// Events writes those about Nodes; nil writes none.
	Events *eventrecorder.Recorder
	// Leases are those that remediators of nodes share; nil takes none.
	Leases *nodelease.Claims

	objects consumer.OwnWrites // of repair objects, by namespace and name
	// kubelets are those that may be dead although their Nodes report Ready.
	kubelets kubelet.Watches
	// taken is when this reconciler took the lease of a node last, by its name: for half of
	// the lease's life. What is not known here, after a start, is taken once more.
	taken sync.Map
}

// Service is the reconciler as a consumer of the store: every node that a record still
// needs a step for is looked at.
func (r *Reconciler) Service(name string, workers int) *consumer.Service {
	return &consumer.Service{
		Name: name, Metrics: consume.Names{
			Namespace: "nvsentinel_fault_remediation", Handling: "fault_remediation_event_handling_duration_seconds",
			Depth: "nvsentinel_fault_remediation_queue_depth",
		}, Store: r.Records, Selector: record.QuarantinedAndDrainedNodes(), Own: r.Records,
		Reconcile: r.Handle, Backlog: consumer.Open(r.Records, decision.Unsettled, record.OpenOfNode(""), Unsettled()), Workers: workers,
	}
}

// maxSteps bounds the steps of one handling; a whole life takes about ten.
const maxSteps = 20

// raceWait is the pause after as many lost races as that.
const raceWait = time.Second

// Handle takes a node's steps until the next one only waits: it observes, decides, acts,
// updates the status and waits. Before each step the facts are read again, so that an
// object is created on current facts.
func (r *Reconciler) Handle(ctx context.Context, node string) error {
	var reserved *reservation
	for range maxSteps {
		f, err := r.observe(ctx, node, reserved)
		if err != nil {
			return err
		}
		crashpoint.Here("fault-remediation/observed")
		step := r.decide(f)
		crashpoint.Here("fault-remediation/decided")
		switch {
		case r.DryRun:
			return r.rehearse(node, step)
		case step.Create != nil:
			step, err = r.do(ctx, f, step)
		case len(step.Writes) > 0:
			_, err = r.updateStatus(ctx, f, step)
		}
		if err != nil {
			return err
		}
		if step.OnlyWaits() {
			return r.waitForChange(ctx, f, step)
		}
		reserved = reserve(f, step)
	}
	return retry.Wait(raceWait, "node "+node+" changes faster than it is reconciled")
}

// do has the reserved object created, and records that it exists. What becomes of
// it from then on enqueues the node: nothing is read again to wait for it, and the Node
// has its mark already.
func (r *Reconciler) do(ctx context.Context, f *facts, step decision.Step) (decision.Step, error) {
	step, err := r.create(ctx, f, step)
	if err != nil || len(step.Writes) == 0 {
		return step, err
	}
	quiet, err := r.updateStatus(ctx, f, step)
	if wait := r.decide(f); quiet && wait.Reason == decision.WaitObject && wait.OnlyWaits() {
		wait.Label, wait.RepeatOffender = "", nil
		return wait, err
	}
	return step, err
}

// decide returns what is to be done, which depends on nothing but the facts.
func (r *Reconciler) decide(f *facts) decision.Step {
	return decision.Next(f.view, r.Repairs, r.Policy, r.Clock.Now())
}

// rehearse logs what would be done and does not do it.
func (r *Reconciler) rehearse(node string, step decision.Step) error {
	if !step.OnlyWaits() {
		r.Log.Info("step skipped in dry run", "node", node, "step", step.Reason, "message", step.Message)
	}
	r.Metrics.steps.WithLabelValues(string(step.Reason), "true").Inc()
	return nil
}

// updateStatus writes a step's record changes, which the facts show then. quiet reports
// whether they are all that is new about these records. A conflict is no error: the facts
// are read again, and the next step is decided from them.
func (r *Reconciler) updateStatus(ctx context.Context, f *facts, step decision.Step) (quiet bool, err error) {
	var changes []store.Change
	for _, w := range step.Writes {
		changes = append(changes, store.Change{ID: w.ID, Revision: w.Revision, Status: w.Status, ExpireAt: w.ExpireAt})
	}
	r.announce(ctx, f, step)
	news, err := r.Records.Write(ctx, changes)
	if errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	if err != nil {
		r.Metrics.failed("update")
		return false, fmt.Errorf("writing the status update %s of node %s: %w", step.Reason, f.view.Node.Name, err)
	}
	f.wrote(step)
	r.Log.Info("status updated", "node", f.view.Node.Name, "step", step.Reason, "records", len(changes), "message", step.Message)
	r.Metrics.reserved(step, f.view.Records)
	crashpoint.Here(statusPoint(step.Reason))
	if step.Reason == decision.Escalate {
		r.escalated(f, step.Message)
	}
	return !news, nil
}

func statusPoint(why decision.Reason) string {
	switch why { //nolint:exhaustive // all other status updates are alike
	case decision.Reserved:
		return "fault-remediation/name-stamped"
	case decision.RecordUID:
		return "fault-remediation/uid-stamped"
	}
	return "fault-remediation/stamped"
}

// waitForChange shows on the Node what is waited for, and lets it go until the world changes
// or the step's time is over.
func (r *Reconciler) waitForChange(ctx context.Context, f *facts, step decision.Step) error {
	if err := r.mark(ctx, f, step); err != nil {
		return err
	}
	if step.Reason == decision.WaitNewer && f.node != nil {
		r.Events.Event(eventrecorder.Node(f.node.Name), corev1.EventTypeWarning, string(step.Reason),
			"The remediation of the node requires a newer version of fault-remediation, see docs/tasks/upgrade.md: "+step.Message)
	}
	r.renewLease(ctx, f, step)
	crashpoint.Here("fault-remediation/done")
	r.Metrics.waiting(step.Reason)
	if step.After > 0 {
		return retry.Park(step.After, fmt.Sprintf("%s: %s", step.Reason, step.Message))
	}
	return nil
}
