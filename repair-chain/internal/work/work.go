// Package work takes the runs of repair chains as far as they go: it has package chain
// decide, looks at, makes and writes the objects of steps, and keeps what is remembered
// of them in the run before anything is written.
package work

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

// Resource is where objects of a kind are read, written and deleted: a dynamic client's
// resource in a namespace is one.
type Resource interface {
	artifact.Resource
	Delete(ctx context.Context, name string, o metav1.DeleteOptions, sub ...string) error
}

// Resources finds where objects of a kind are read and written; namespace is empty for
// those of the cluster. An error means that the API server does not serve the kind, or that
// this could not be determined.
type Resources func(kind schema.GroupVersionKind, namespace string) (Resource, error)

// Save keeps the status of a run under its resource version, which it renews.
type Save func(ctx context.Context, run *v1alpha1.RepairRun) error

// Worker works on runs.
type Worker struct {
	Resources Resources
	Save      Save
}

// Pass takes a run as far as it goes now, and writes its status into it; what has to
// survive is saved on the way, the caller saves the rest. An error is of writing or
// saving: pass again.
func (w Worker) Pass(ctx context.Context, run *v1alpha1.RepairRun, c *chain.Chain, facts chain.Facts) error {
	if chain.Ended(run) {
		return nil
	}
	if v1alpha1.Abandoned(run) {
		return w.giveUp(ctx, run, facts)
	}
	var problems []error
	r := round{w, run, c, facts}
	for i := range run.Status.Steps {
		turn, ahead := c.Consider(run, i, facts)
		if turn != nil {
			d, err := r.turn(ctx, turn, i)
			if err != nil {
				chain.Trouble(run, i, err)
				problems = append(problems, fmt.Errorf("step %s: %w", run.Status.Steps[i].Name, err))
			} else {
				chain.Observe(run, i, turn.Template, d)
				ahead = c.ApplyVerdict(run, i, turn, d, facts.Now)
			}
		}
		if !ahead {
			break
		}
	}
	c.Conclude(run, facts.Now)
	return errors.Join(problems...)
}

// round is one pass over a run.
type round struct {
	Worker
	run   *v1alpha1.RepairRun
	chain *chain.Chain
	facts chain.Facts
}

// turn takes the object of a step as far as it goes.
func (r round) turn(ctx context.Context, turn *chain.Turn, i int) (artifact.Decision, error) {
	progress, err := chain.Progress(r.run, i)
	if err != nil {
		return artifact.Decision{}, err
	}
	resource, err := r.Resources(turn.Template.GVK, turn.Template.Namespace)
	if err != nil {
		return artifact.Decision{}, err
	}
	t, name := turn.Template, r.run.Status.Steps[i].Name
	object := artifact.Object{
		Resource: resource, Name: chain.ObjectName(r.run, name), Lifecycle: t.Lifecycle, Rule: t.Rule, Paths: t.Paths,
		UnknownTimeout: r.chain.Steps[i].Timeout.Duration, ReadOnly: turn.Blocker != (chain.Blocker{}),
	}
	_, d, err := object.Pass(ctx, progress, turn.Wanted, r.facts.Now, func(ctx context.Context, p artifact.Progress) error {
		kept := r.run.DeepCopy()
		if err := chain.Keep(kept, i, turn, p, r.facts.Now); err != nil {
			return err
		}
		if err := r.Save(ctx, kept); err != nil {
			return err
		}
		*r.run = *kept
		return nil
	})
	return d, err
}
