// Package repair carries out the plan of a node's repair: it reads the facts,
// lets the plan decide, creates repair objects, and stamps records and Nodes.
package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/echo"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Desk repairs nodes, one step at a time.
type Desk struct {
	Records *consumer.Records
	Cluster *kube.Client
	Repairs action.Policy
	Policy  plan.Policy
	// Eviction is the drainer's policy: which pods had to go.
	Eviction eviction.Policy
	// DryRun decides and logs, and writes nothing.
	DryRun  bool
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *Metrics
	// Brake is the emergency brake; nil is never on.
	Brake *brake.Brake
	// Events writes those about Nodes; nil writes none.
	Events *eventrecorder.Recorder
	// Leases are those that remediators of nodes share; nil takes none.
	Leases *nodelease.Claims

	objects echo.Book // of repair objects, by namespace and name
	taken   sync.Map  // when the lease of a node was taken last, by its name
}

// maxSteps bounds the steps of one handling; a whole life takes about ten.
const maxSteps = 20

// raceWait is the pause after as many lost races as that.
const raceWait = time.Second

// Handle takes a node's steps until the plan only waits. Before each step all
// facts are read again, so that an object is created on facts of the moment.
func (d *Desk) Handle(ctx context.Context, node string) error {
	var last *facts
	for range maxSteps {
		f, err := d.observe(ctx, node, last)
		if err != nil {
			return err
		}
		if f.wait != nil {
			return d.rest(*f.wait)
		}
		crashpoint.Here("fault-remediation/observed")
		step := plan.Next(f.view, d.Repairs, d.Policy, d.Clock.Now())
		crashpoint.Here("fault-remediation/decided")
		if d.DryRun {
			return d.rehearse(node, step)
		}
		if done, err := d.do(ctx, f, step); done || err != nil {
			return err
		}
		if next, ok := d.followed(f, step); ok {
			return d.rest(next)
		}
		last = f
	}
	return outcome.Wait(raceWait, "node "+node+" changes faster than it is repaired")
}

// do carries out one step; done is true when nothing is left but to wait.
func (d *Desk) do(ctx context.Context, f *facts, step plan.Step) (done bool, err error) {
	switch {
	case step.Reason == plan.Stamp && crashpoint.Sabotaged("fault-remediation/skip-name-stamp"):
		return true, d.createUnstamped(ctx, f, step)
	case len(step.Writes) > 0:
		return false, d.stamp(ctx, f, step)
	case step.Create != nil:
		return d.create(ctx, f, step)
	}
	if err := d.mark(ctx, f, step); err != nil {
		return false, err
	}
	d.hold(ctx, f, step)
	crashpoint.Here("fault-remediation/done")
	return true, d.rest(step)
}

// rest lets the node go until the world changes.
func (d *Desk) rest(step plan.Step) error {
	d.Metrics.waiting(step.Reason)
	if step.After > 0 {
		return outcome.Park(step.After, fmt.Sprintf("%s: %s", step.Reason, step.Message))
	}
	return nil
}

// followed is the wait for an object that was created, and its uid stamped, a
// moment ago: nothing needs to be read for it, and what changes rings the node.
func (d *Desk) followed(f *facts, step plan.Step) (plan.Step, bool) {
	if !f.mine || step.Reason != plan.RecordUID || !f.stamped || f.news {
		return plan.Step{}, false
	}
	view := f.view
	view.Records = slices.Clone(view.Records)
	for i := range view.Records {
		for _, w := range step.Writes {
			if r := &view.Records[i]; r.ID == w.ID {
				r.Status, r.Revision = w.Status, w.Revision+1
			}
		}
	}
	next := plan.Next(view, d.Repairs, d.Policy, d.Clock.Now())
	return next, next.Reason == plan.WaitObject && next.After > 0
}

// stamp writes a step's record changes. A conflict is no error: the facts are
// read again and decided anew.
func (d *Desk) stamp(ctx context.Context, f *facts, step plan.Step) error {
	var changes []store.Change
	for _, w := range step.Writes {
		changes = append(changes, store.Change{ID: w.ID, Revision: w.Revision, Status: w.Status, ExpireAt: w.ExpireAt})
	}
	news, err := d.Records.Write(ctx, changes)
	f.stamped, f.news = err == nil, f.news || news
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	if err != nil {
		d.Metrics.failed("stamp")
		return fmt.Errorf("stamping %s of node %s: %w", step.Reason, f.view.Node.Name, err)
	}
	d.Log.Info("stamped", "node", f.view.Node.Name, "step", step.Reason, "records", len(changes), "message", step.Message)
	d.Metrics.stamped(step, f.view.Records)
	crashpoint.Here(stampPoint(step.Reason))
	switch step.Reason { //nolint:exhaustive // the others leave nothing more to do
	case plan.Stamp:
		f.reserved = true
	case plan.Escalate:
		d.escalated(f, step.Message)
	}
	return nil
}

func stampPoint(r plan.Reason) string {
	switch r { //nolint:exhaustive // all other stamps are alike
	case plan.Stamp:
		return "fault-remediation/name-stamped"
	case plan.RecordUID:
		return "fault-remediation/uid-stamped"
	}
	return "fault-remediation/stamped"
}

// rehearse tells what would be done and leaves it.
func (d *Desk) rehearse(node string, step plan.Step) error {
	if len(step.Writes) > 0 || step.Create != nil {
		d.Log.Info("dry run: nothing is written", "node", node, "step", step.Reason, "message", step.Message)
	}
	d.Metrics.rehearsed(step.Reason)
	return nil
}
