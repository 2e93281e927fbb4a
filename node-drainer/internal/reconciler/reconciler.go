// Package reconciler reconciles the drain of one node. This file has the whole pass over a
// node: Handle observes it, decides on the next step, acts, updates the status of the node's
// records, and requeues the node. The other files are about one subject each: the records, the
// Node, its pods, disruption budgets, evictions, Events.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Config is how drains are carried out.
type Config struct {
	Policy decision.Policy
	// PerNode and InFlight bound the evictions under way, of one node and of all.
	PerNode, InFlight int
	// PerSecond bounds the evictions of all nodes; 0 leaves it to the API server.
	PerSecond float64
	// DryRun goes through every decision and writes nothing.
	DryRun bool
}

// maxSteps bounds one visit, so that other nodes get their turn.
const maxSteps = 8

// Reconciler is the handler of nodes. Handle may be called for several nodes at
// once, but for one node by one caller at a time.
type Reconciler struct {
	records *consumer.Records
	client  kubernetes.Interface
	cluster *Cluster
	config  Config
	clock   clock.Clock
	log     *slog.Logger
	metrics *Metrics
	events  *eventrecorder.Recorder
	tracker *tracker
	cordons *cordons
	evictor *evictor
}

// Deps are the parts a Reconciler works with.
type Deps struct {
	Records *consumer.Records
	Client  kubernetes.Interface
	Cluster *Cluster
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *Metrics
	// Pause is the emergency stop; nil is never on.
	Pause *pause.Switch
	// Events writes those about Nodes; nil writes none.
	Events *eventrecorder.Recorder
}

// New makes a Reconciler.
func New(c Config, d Deps) *Reconciler {
	out := &Reconciler{
		records: d.Records, client: d.Client, cluster: d.Cluster, config: c,
		clock: d.Clock, log: d.Log, metrics: d.Metrics, events: d.Events, tracker: newTracker(),
		cordons: newCordons(d.Records, d.Clock),
		evictor: &evictor{
			client: d.Client, cluster: d.Cluster, clock: d.Clock, log: d.Log, metrics: d.Metrics, pause: d.Pause,
			grace: c.Policy.Eviction.Grace, perNode: c.PerNode, evictions: newSemaphore(c.InFlight, c.PerSecond),
		},
	}
	d.Metrics.watch(out.tracker.size, out.cordons.size, out.tracker.overdue)
	return out
}

// facts are what one pass knows of a node: its name, what is remembered of it, the Node
// object (nil if there is none), and the view that decisions are made from.
type facts struct {
	name  string
	notes *notes
	node  *corev1.Node
	view  decision.View
}

// Handle takes a node's steps until its drain has to wait.
func (rc *Reconciler) Handle(ctx context.Context, node string) error {
	if ok, detail := rc.cluster.Synced(); !ok {
		return retry.Wait(time.Second, detail)
	}
	notes := rc.tracker.open(node)
	if !rc.config.DryRun && rc.cluster.session(node) != "" && rc.cordons.standBack(ctx, node, notes) {
		return retry.Park(decision.StandBackFor, "the faults of other nodes are evaluated and quarantined first")
	}
	for range maxSteps {
		step, ends, err := rc.step(ctx, node, notes)
		switch {
		case lostRace(err):
			return retry.Race(err.Error())
		case err != nil:
			return err
		case ends:
			return rc.requeue(node, step)
		}
	}
	return retry.Wait(0, "more steps to take")
}

// step takes one step: it observes, decides, acts, and updates the status of the
// records. ends is true if nothing more follows in this pass.
func (rc *Reconciler) step(ctx context.Context, node string, notes *notes) (step decision.Step, ends bool, err error) {
	seen, err := rc.observe(ctx, node, notes)
	if err != nil {
		return step, false, err
	}
	if rc.config.DryRun {
		return rc.rehearse(seen), true, nil
	}
	crashpoint.Here("node-drainer/observed")
	step, err = rc.decide(ctx, &seen)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/decided")
	if err := rc.act(ctx, seen, step); err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/done")
	changed, err := rc.updateStatus(ctx, seen, step)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/stamped")
	rc.report(seen, step)
	if changed { // others changed the records right after the update
		return step, false, nil
	}
	step = rc.followed(seen.view, step)
	return step, step.EndsPass(), nil
}

// observe reads the facts of a node: the Node and its pods from the caches, its records
// from the store.
func (rc *Reconciler) observe(ctx context.Context, node string, notes *notes) (facts, error) {
	object, err := rc.cluster.Node(node)
	if err != nil {
		return facts{}, err
	}
	pods, err := rc.cluster.Pods(node)
	if err != nil {
		return facts{}, err
	}
	seen := facts{name: node, notes: notes, node: object, view: decision.View{Node: decision.NodeOf(object), Pods: pods}}
	if seen.view.Records, err = rc.list(ctx, seen); err != nil {
		return facts{}, err
	}
	notes.recall(&seen.view, rc.cluster.allows)
	return seen, nil
}

// decide returns the next step. It reads what the step needs from the API server itself, and
// then decides again.
func (rc *Reconciler) decide(ctx context.Context, seen *facts) (decision.Step, error) {
	step := decision.Next(seen.view, rc.config.Policy, rc.clock.Now())
	reads := decision.Needs(step)
	if !reads.Node {
		return step, nil
	}
	if err := rc.confirm(ctx, seen, reads); err != nil {
		return step, err
	}
	return decision.Next(seen.view, rc.config.Policy, rc.clock.Now()), nil
}

// confirm reads the Node, and the pods if they are needed, from the API server. The
// Node comes first: what was bound to it before it was cordoned is then listed.
// A list of pods takes the API server a tenth of a second, in which
// fault-quarantine mostly records that it has marked the Node; the records are
// read again after it, so that the drain's update is not lost to that one.
func (rc *Reconciler) confirm(ctx context.Context, seen *facts, reads decision.Reads) (err error) {
	if seen.node, err = rc.cluster.LiveNode(ctx, seen.name); err != nil {
		return err
	}
	seen.view.Node = decision.NodeOf(seen.node)
	if !reads.Pods {
		return nil
	}
	if seen.view.Pods, err = rc.cluster.LivePods(ctx, seen.name); err != nil {
		return err
	}
	seen.view.Records, err = rc.list(ctx, *seen)
	return err
}

// act carries out the effects of a step: the label first, then the pods.
func (rc *Reconciler) act(ctx context.Context, seen facts, step decision.Step) error {
	if step.Label != "" {
		if err := rc.label(ctx, seen.node, step.Label); err != nil {
			return err
		}
	}
	if len(step.Pods) == 0 {
		return nil
	}
	return rc.evictor.takeAway(ctx, seen, step)
}

// updateStatus writes the step's statuses in one batch of compare-and-sets; changed is true
// if others changed the records right after it.
func (rc *Reconciler) updateStatus(ctx context.Context, seen facts, step decision.Step) (changed bool, err error) {
	if len(step.Updates) == 0 {
		return false, nil
	}
	now := rc.clock.Now()
	if changed, err = rc.records.Write(ctx, changes(seen.view.Records, step, now)); err != nil {
		return changed, fmt.Errorf("updating the drain status of node %s: %w", seen.name, err)
	}
	if step.Kind == decision.Wait {
		seen.notes.reported = now
	}
	return changed, nil
}

// followed is the step that follows a Finish on the facts it was taken on, which
// were read a moment ago: whatever changes them enqueues the node. Unless it ends the
// pass, the Finish is returned, so that everything is read again.
func (rc *Reconciler) followed(v decision.View, step decision.Step) decision.Step {
	if step.Kind != decision.Finish {
		return step
	}
	now := rc.clock.Now()
	next := decision.Next(decision.After(v, step, now), rc.config.Policy, now)
	if !next.EndsPass() || next.Label != "" || len(next.Updates) > 0 {
		return step
	}
	rc.metrics.stepped(next)
	return next
}

// requeue decides when a node is handled again after the last step of a pass. A node without
// work is forgotten.
func (rc *Reconciler) requeue(node string, step decision.Step) error {
	if step.Kind == decision.Nothing {
		rc.tracker.close(node)
		return nil
	}
	return retry.Park(step.Until.Sub(rc.clock.Now()), string(step.Why))
}

// lostRace reports whether somebody else changed the Node or a record after it was
// read.
func lostRace(err error) bool {
	return errors.Is(err, kube.ErrConflict) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)
}

// rehearsed: node-drainer runs in dry run and has logged every step of the drain. It evicts nothing. Action: none, or
// set `dryRun` to false.
const rehearsed decision.Reason = "DryRun"

// rehearse goes through the steps of a drain as if every effect had come true,
// logs them and writes nothing. It returns the step that ends the pass.
func (rc *Reconciler) rehearse(seen facts) decision.Step {
	v, now := seen.view, rc.clock.Now()
	for i := range maxSteps {
		step := decision.Next(v, rc.config.Policy, now)
		rc.metrics.stepped(step)
		rc.logRehearsed(seen, step)
		if step.Kind == decision.Wait || step.Kind == decision.Nothing && i == 0 {
			return step
		}
		if step.EndsPass() {
			break
		}
		v = decision.After(v, step, now)
	}
	return decision.Step{Kind: decision.Wait, Why: rehearsed, Until: now.Add(rc.config.Policy.Recheck)}
}

// logRehearsed logs a step that a dry run has not logged of the node before.
func (rc *Reconciler) logRehearsed(seen facts, step decision.Step) {
	key := event{string(step.Kind), string(step.Why)}
	if seen.notes.announced[key] {
		return
	}
	seen.notes.announced[key] = true
	rc.log.Info("drain step skipped in dry run", "node", seen.name, "session", step.Session, "step", string(step.Kind),
		"reason", string(step.Why), "pods", len(step.Pods), "left", step.Left, "label", string(step.Label))
}
