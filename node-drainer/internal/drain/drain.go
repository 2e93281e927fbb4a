// Package drain carries out the drains of nodes: it observes a node, asks the
// plan for the next step, takes it and stamps the node's records.
package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Config says how drains are carried out.
type Config struct {
	Policy plan.Policy
	// PerNode and InFlight bound the evictions under way, of one node and of all.
	PerNode, InFlight int
	// PerSecond bounds the evictions of all nodes; 0 leaves it to the API server.
	PerSecond float64
	// DryRun goes through every decision and writes nothing.
	DryRun bool
}

// Drain is the handler of nodes. Handle may be called for several nodes at
// once, but for one node by one caller at a time.
type Drain struct {
	records *consumer.Records
	client  kubernetes.Interface
	world   *World
	config  Config
	clock   clock.PassiveClock
	log     *slog.Logger
	metrics *Metrics
	brake   *brake.Brake
	memory  *memory
	hand    *hand
}

// Deps are the parts a Drain works with.
type Deps struct {
	Records *consumer.Records
	Client  kubernetes.Interface
	World   *World
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
	// Brake is the emergency brake; nil is never on.
	Brake *brake.Brake
}

// New makes a Drain.
func New(c Config, d Deps) *Drain {
	out := &Drain{
		records: d.Records, client: d.Client, world: d.World, config: c,
		clock: d.Clock, log: d.Log, metrics: d.Metrics, brake: d.Brake, memory: newMemory(),
	}
	out.hand = newHand(out)
	d.Metrics.watch(out.memory.size)
	return out
}

// maxSteps bounds one visit, so that other nodes get their turn.
const maxSteps = 8

// lostRace is how long to wait after another writer was faster.
const lostRace = 200 * time.Millisecond

// scene is what one pass sees: the facts, and the Node and records they were
// read from.
type scene struct {
	view    plan.View
	node    *corev1.Node
	records []record.Record
}

// Handle takes a node's steps until its drain rests.
func (d *Drain) Handle(ctx context.Context, node string) error {
	if ok, detail := d.world.Synced(); !ok {
		return outcome.Wait(time.Second, detail)
	}
	n := d.memory.open(node)
	if d.config.DryRun {
		return d.rehearse(ctx, node, n)
	}
	for range maxSteps {
		step, after, err := d.step(ctx, node, n)
		if err != nil {
			return err
		}
		if n.news { // a record changed right after it was stamped
			n.news = false
			continue
		}
		if step.Kind == plan.Finish {
			step = d.followed(after, step)
		}
		if step.Rests() {
			return d.rest(node, step)
		}
	}
	return outcome.Wait(0, "more steps to take")
}

// followed is the rest that follows a Finish on the facts it was taken on, which
// were read a moment ago: whatever changes them rings the node. If it is no
// rest, the Finish is returned, so that everything is read again.
func (d *Drain) followed(sc scene, finish plan.Step) plan.Step {
	if next := plan.Next(d.imagine(sc.view, finish), d.config.Policy, d.clock.Now()); next.Rests() && next.Label == "" && len(next.Stamps) == 0 {
		d.metrics.stepped(next)
		return next
	}
	return finish
}

// step observes, decides, does and stamps once, and returns what it was
// decided on.
func (d *Drain) step(ctx context.Context, node string, n *notes) (plan.Step, scene, error) {
	sc, err := d.observe(ctx, node, n)
	if err != nil {
		return plan.Step{}, sc, err
	}
	crashpoint.Here("node-drainer/observed")
	step, sc, err := d.decide(ctx, node, n, sc)
	if err != nil {
		return step, sc, err
	}
	crashpoint.Here("node-drainer/decided")
	if crashpoint.Sabotaged("node-drainer/stamp-before-effect") && len(step.Pods) > 0 {
		if err := d.stamp(ctx, node, n, sc, tooSoon(sc.view)); err != nil {
			return step, sc, err
		}
	}
	if err := d.do(ctx, node, n, sc, step); err != nil {
		return step, sc, err
	}
	crashpoint.Here("node-drainer/done")
	if err := d.stamp(ctx, node, n, sc, step); err != nil {
		return step, sc, err
	}
	crashpoint.Here("node-drainer/stamped")
	d.tell(ctx, node, n, sc, step)
	return step, sc, nil
}

// rest says how the consumer goes on after the last step of a visit.
func (d *Drain) rest(node string, step plan.Step) error {
	if step.Kind == plan.Nothing {
		d.memory.close(node)
		return nil
	}
	return outcome.Park(step.Until.Sub(d.clock.Now()), string(step.Why))
}

// decide asks the plan; a step that cannot be taken back is asked again with
// facts from the API server itself.
func (d *Drain) decide(ctx context.Context, node string, n *notes, sc scene) (plan.Step, scene, error) {
	step := plan.Next(sc.view, d.config.Policy, d.clock.Now())
	if !step.Irreversible() {
		return step, sc, nil
	}
	sc, err := d.confirm(ctx, node, n, sc, step.Kind == plan.Finish)
	if err != nil {
		return step, sc, err
	}
	return plan.Next(sc.view, d.config.Policy, d.clock.Now()), sc, nil
}

// do carries out the effects of a step: the label first, then the pods.
func (d *Drain) do(ctx context.Context, node string, n *notes, sc scene, step plan.Step) error {
	if step.Label != "" {
		if err := d.label(ctx, n, sc.node, step.Label); err != nil {
			return err
		}
	}
	if len(step.Pods) == 0 {
		return nil
	}
	return d.hand.takeAway(ctx, node, n, step)
}

// stamp writes the step's stamps in one batch of compare-and-sets.
func (d *Drain) stamp(ctx context.Context, node string, n *notes, sc scene, step plan.Step) error {
	if len(step.Stamps) == 0 {
		return nil
	}
	now := d.clock.Now()
	var err error
	n.news, err = d.records.Write(ctx, changes(sc.records, step.Stamps, now))
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return outcome.Wait(lostRace, "the node's records changed meanwhile")
	case err != nil:
		return fmt.Errorf("stamping the drain of node %s: %w", node, err)
	}
	if step.Kind == plan.Wait {
		n.reported = now
	}
	return nil
}

func changes(records []record.Record, stamps []plan.Stamp, now time.Time) []store.Change {
	byID := map[string]record.Record{}
	for _, r := range records {
		byID[r.ID] = r
	}
	out := make([]store.Change, 0, len(stamps))
	for _, s := range stamps {
		r := byID[s.ID]
		out = append(out, store.Change{ID: r.ID, Revision: r.Revision, Status: s.On(r.Status, now), ExpireAt: r.ExpireAt})
	}
	return out
}

// tooSoon is the success of a drain whose pods are still there: the fault that
// the crash tests plant to see that they find it.
func tooSoon(v plan.View) plan.Step {
	v.Pods = nil
	return plan.Next(v, plan.Policy{}, time.Time{})
}
