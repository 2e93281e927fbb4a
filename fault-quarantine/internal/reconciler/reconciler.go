// Package reconciler reconciles one node for fault-quarantine: it reads the node's records and
// its Node, calls package decision, writes the records, then the Node, and updates the status.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Nodes reads and patches Node objects.
type Nodes interface {
	// Read returns the Node; nil when it is certain not to exist.
	Read(ctx context.Context, name string) (*corev1.Node, error)
	// Patch applies mutate in one patch, while the Node is in every fact as before.
	Patch(ctx context.Context, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error)
	// Note records a Kubernetes Event on the Node.
	Note(ctx context.Context, node *corev1.Node, e Event)
}

// Reconciler handles nodes one at a time each; it is safe for concurrent nodes.
type Reconciler struct {
	// Store has the records that act.
	Store store.Store
	// Reported has those that are only observed too: what publishers reported last.
	Reported store.Lister
	Nodes    Nodes
	// Rules are the rule sets until Use takes others over.
	Rules   *rulematch.Rules
	Mutator marks.Mutator
	// DryRun evaluates and writes verdicts, and never quarantines.
	DryRun    bool
	Retention time.Duration
	Clock     clock.PassiveClock
	Log       *slog.Logger
	Metrics   *Metrics
	// Quota keeps the places of the quarantine budget.
	Quota *quota.Queue
	// Pause is the emergency stop; nil is never on.
	Pause *pause.Switch
	// Marked reports from a cache whether a Node bears marks of the project, so that a
	// node without records and marks costs no API request. A stale no is made
	// good by the Node's own source.
	Marked func(name string) bool

	// Cached is the Node that the same cache has, nil where it has none; nil reads all
	// Nodes from the API server. See decision.Node.Suffices.
	Cached func(name string) *corev1.Node

	newer        atomic.Pointer[rulematch.Rules]
	waits        waits
	cursors      cursors
	contested    contested
	ownWrites    consumer.OwnWrites
	maxFullBytes int // stands for maxFullBytes in tests
}

// Use takes other rule sets over: from the next look at a node on, faults that are
// not evaluated yet are evaluated by them, whole.
func (rc *Reconciler) Use(r *rulematch.Rules) { rc.newer.Store(r) }

// inForce are the active rule sets.
func (rc *Reconciler) inForce() *rulematch.Rules {
	if r := rc.newer.Load(); r != nil {
		return r
	}
	return rc.Rules
}

// soon is when a node is looked at again of which one look could not evaluate all
// records; those left are found by the backlog after a restart.
const soon = time.Millisecond

// waitForNode is how long a node whose object is missing, or whose machine is
// undecidable, waits when nothing wakes it.
const waitForNode = time.Minute

// waitForQuota is how long a held node waits when the budget does not wake it.
const waitForQuota = 5 * time.Minute

// waitForBudget is how long a node waits for the budget to be read.
const waitForBudget = 200 * time.Millisecond

// Handle brings one node's records and its Node up to date.
func (rc *Reconciler) Handle(ctx context.Context, name string) error {
	err := rc.handle(ctx, name)
	if errors.Is(err, kube.ErrConflict) {
		err = retry.Race(err.Error())
	}
	if !expected(err) {
		rc.Quota.Leave(name)
	}
	return err
}

// expected reports whether the work is done or waits for something known.
func expected(err error) bool {
	_, _, wait := retry.AsWait(err)
	_, _, park := retry.AsPark(err)
	return err == nil || wait || park
}

func (rc *Reconciler) handle(ctx context.Context, name string) error {
	seen, err := rc.observe(ctx, name)
	if err != nil {
		return err
	}
	if len(seen.view.Pending)+len(seen.view.Open) == 0 && seen.node == nil {
		rc.settle(name, decision.Evaluation{})
		rc.waits.set(name, "")
		rc.noteRestored(ctx, name, nil, nil)
		return nil
	}
	crashpoint.Here("fault-quarantine/observed")
	evaluation, err := rc.evaluate(seen)
	if err != nil {
		return err
	}
	crashpoint.Here("fault-quarantine/decided")
	written, err := rc.writeVerdicts(ctx, evaluation, decision.Recoveries(seen.view.Pending))
	if err != nil {
		return err
	}
	crashpoint.Here("fault-quarantine/stamped")
	if seen.node != nil {
		if seen.node, err = rc.mark(ctx, seen.node, evaluation, written); err != nil {
			return err
		}
		crashpoint.Here("fault-quarantine/done")
	}
	rc.settle(name, evaluation)
	if seen.pass() {
		return rc.requeueSoon(name, seen, evaluation)
	}
	return rc.requeue(ctx, name, seen.node, evaluation)
}

// requeueSoon has the node looked at again soon: at the records behind what could not
// be evaluated now, and after the last ones from the start.
func (rc *Reconciler) requeueSoon(name string, seen facts, j decision.Evaluation) error {
	rc.waits.set(name, j.Waiting)
	switch {
	case !seen.more:
		rc.cursors.end(name)
		return retry.Park(waitForNode, "some records of the node cannot be evaluated now")
	case len(j.Changed) == 0:
		rc.cursors.skip(name, latest(pendingOf(seen.view.Pending)))
	}
	return retry.Park(soon, "more records of the node wait for their evaluation")
}

// evaluate has the decision made, with a place in the budget for a session that
// would be opened, or without.
func (rc *Reconciler) evaluate(seen facts) (decision.Evaluation, error) {
	now, node, policy := rc.Clock.Now(), seen.node, seen.policy
	evaluation := decision.Evaluate(seen.view, policy, now)
	if evaluation.Opens == nil {
		return evaluation, nil
	}
	if rc.Pause.Unread() {
		return evaluation, retry.Wait(waitForBudget, "the emergency stop is not read yet")
	}
	if why, on := rc.Pause.On(); on {
		policy.HoldReason = why
		return decision.Evaluate(seen.view, policy, now), nil
	}
	c := budget.Candidate{Name: node.Name, Labels: node.Labels, InSession: nodemark.Session(node) != "", Order: evaluation.Opens.Append}
	granted, why, err := rc.Quota.Take(c, evaluation.Opens.ID)
	if errors.Is(err, quota.ErrNotOpen) {
		return evaluation, retry.Wait(waitForBudget, err.Error())
	}
	if err != nil || granted {
		return evaluation, err
	}
	policy.HoldReason = why
	return decision.Evaluate(seen.view, policy, now), nil
}

// settle informs the budget about what became of the node.
func (rc *Reconciler) settle(name string, j decision.Evaluation) {
	if j.Held == nil {
		rc.Quota.Settle(name, decision.Session(j.Open))
	}
}

// requeue reports what the node waits for, and returns when it is looked at again.
func (rc *Reconciler) requeue(ctx context.Context, name string, node *corev1.Node, j decision.Evaluation) error {
	if rc.waits.set(name, j.Waiting) && j.Waiting != "" {
		rc.Log.Warn("evaluation of records postponed", "node", name, "reason", j.Waiting, "detail", j.Detail, "unknown", j.Unknown)
		if node != nil {
			rc.Nodes.Note(ctx, node, Event{Warning: j.Waiting != decision.WaitRepair && j.Waiting != decision.WaitRepeatOffender, Reason: j.Waiting, Message: waitingText(j)})
		}
	}
	restoration := rc.restoreWait(node)
	switch {
	case restoration > 0:
		return retry.Park(restoration, "a cordon or taint was removed shortly after its restoration, it is restored again later")
	case j.Waiting != "":
		return retry.Park(waitForNode, j.Waiting)
	case j.Held != nil:
		return retry.Park(waitForQuota, string(record.Held))
	}
	return nil
}

func (rc *Reconciler) policy(node *corev1.Node) decision.Policy {
	value, known, rules := nodeValue(node), map[string]rulematch.Ruling{}, rc.inForce()
	return decision.Policy{
		DryRun: rc.DryRun, Retention: rc.Retention,
		Match: func(e record.Event) rulematch.Ruling {
			r, ok := known[e.ID]
			if ok {
				return r
			}
			crashpoint.DieOf(e.Message)
			r = rules.Decide(e, value)
			known[e.ID] = r
			for _, err := range r.Errors {
				rc.Metrics.RuleErrors.Inc()
				rc.Log.Warn("rule not evaluated", "node", e.NodeName, "record", e.ID, "error", err)
			}
			return r
		},
	}
}

// writeVerdicts writes the evaluation in parts, each as one batch of compare-and-sets
// within the time that no other replica can lead: a pile of records gets through
// however slow the store is. What a stopped pass has not written is evaluated again.
// It returns the revisions that it made, by the records' ids.
func (rc *Reconciler) writeVerdicts(
	ctx context.Context, j decision.Evaluation, recoveries []record.Record,
) (written map[string]int64, err error) {
	written = map[string]int64{}
	for _, part := range j.Batches(batchOf(j)) {
		changes := make([]store.Change, len(part))
		for i, r := range part {
			if j.Condensed[r.ID] {
				full, err := rc.readFull(ctx, r)
				if err != nil {
					return nil, err
				}
				r.Status = decision.Expand(full, r, recoveries)
			}
			changes[i] = store.Change{ID: r.ID, Revision: r.Revision, Status: r.Status, ExpireAt: r.ExpireAt}
		}
		after, err := rc.update(ctx, changes)
		if err != nil {
			return nil, err
		}
		for _, r := range after {
			written[r.ID] = r.Revision
		}
		for _, r := range part {
			rc.Metrics.Verdicts.WithLabelValues(string(r.Reason())).Inc()
			rc.Log.Info("record evaluated", "node", r.Event.NodeName, "record", r.ID, "reason", r.Reason(),
				"quarantine", r.Status.NodeQuarantined, "session", r.Status.Session, "detail", r.Status.QuarantineVerdict.Detail)
		}
	}
	return written, nil
}

// update writes one batch under a fence of its own.
func (rc *Reconciler) update(ctx context.Context, changes []store.Change) ([]record.Record, error) {
	ctx, release := lease.Fence(ctx)
	defer release()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("writing evaluations: another replica may lead: %w", err)
	}
	after, err := rc.Store.Update(ctx, record.FaultQuarantine, changes)
	if errors.Is(err, store.ErrConflict) {
		return nil, retry.Wait(0, "another writer changed a record of the node")
	}
	if err != nil {
		return nil, fmt.Errorf("writing evaluations: %w", err)
	}
	return after, nil
}
