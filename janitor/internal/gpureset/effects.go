package gpureset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// resetReason: the janitor is about to create the Job that resets GPUs of the node. Action: none.
const resetReason = "GPUReset"

// note writes down the services as they are.
func (c *Reconciler) note(ctx context.Context, p *pass, _ repair.Verdict) error {
	noted(p.Object, c.Services.facts(p.Node, p.Facts.pods), c.Clock.Now())
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	c.Here("janitor/services-noted")
	return nil
}

// tearDown takes the services that were noted off the node, which shows in the same
// write that it was done.
func (c *Reconciler) tearDown(ctx context.Context, p *pass, _ repair.Verdict) error {
	p.Log.Info("GPU services removed from the node")
	return c.Mark(ctx, p, "janitor/torn-down", func(n *corev1.Node) {
		for _, s := range p.Object.Status.Services {
			nodemark.Label(n, s.Label, reset.Off)
		}
		nodemark.SetReset(n, string(p.Object.UID))
	})
}

// restore gives the labels back. One that somebody has changed since stays.
func (c *Reconciler) restore(ctx context.Context, p *pass, v repair.Verdict) error {
	if v.Reason == repair.Deleted && terminating(p.Object, c.Clock.Now()) {
		if err := c.Write(ctx, p); err != nil {
			return err
		}
	}
	p.Log.Info("GPU services restored on the node")
	return c.Mark(ctx, p, "janitor/restored", func(n *corev1.Node) {
		for _, s := range p.Object.Status.Services {
			switch {
			case n.Labels[s.Label] != reset.Off:
			case s.Value == nil:
				delete(n.Labels, s.Label)
			default:
				n.Labels[s.Label] = *s.Value
			}
		}
		nodemark.SetReset(n, "")
	})
}

// noteJob writes down that the Job is about to be created.
func (c *Reconciler) noteJob(ctx context.Context, p *pass, _ repair.Verdict) error {
	jobNoted(p.Object, c.Tool.Namespace, c.Clock.Now())
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	c.Here("janitor/job-noted")
	return nil
}

// createJob creates the Job. That it has one name makes a second one impossible; an
// answer that is lost is found out at the next look.
func (c *Reconciler) createJob(ctx context.Context, p *pass, _ repair.Verdict) error {
	c.Events.Write(ctx, eventrecorder.Node(p.Node.Name), corev1.EventTypeNormal, resetReason,
		fmt.Sprintf("%s %s resets %s%s", Kind, p.Object.Name, named(p.Object), reconciler.Requester(p.Object)))
	// Nothing may be created once another replica could lead.
	fenced, cancel := lease.FenceCall(ctx)
	defer cancel()
	if err := fenced.Err(); err != nil {
		return fmt.Errorf("creating the job: %w", err)
	}
	_, err := c.Nodes.BatchV1().Jobs(c.Tool.Namespace).Create(fenced, c.Tool.job(p.Object), metav1.CreateOptions{})
	c.Here("janitor/job-created")
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // the next pass finds out whose it is
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return c.end(ctx, p, v1alpha1.GPUResetResult{
			Reason: v1alpha1.ReasonResetJobCreationFailed, Message: "the API server rejected the Job: " + err.Error(),
		})
	case err != nil:
		return fmt.Errorf("creating the job: %w", err)
	}
	p.Log.Info("reset Job created", "job", p.Object.JobName())
	return nil
}

// seeJob writes down that the Job exists.
func (c *Reconciler) seeJob(ctx context.Context, p *pass, _ repair.Verdict) error {
	recordJob(p.Object, string(p.Facts.job.UID), c.Clock.Now())
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	c.Here("janitor/job-seen")
	return nil
}

// conclude writes down how the reset ends once the services are back.
func (c *Reconciler) conclude(ctx context.Context, p *pass, v repair.Verdict) error {
	return c.end(ctx, p, resultOf(v.Reason, p.Object, p.Facts.job))
}

func (c *Reconciler) end(ctx context.Context, p *pass, r v1alpha1.GPUResetResult) error {
	job := jobFacts(p.Object, p.Facts.job)
	if p.Facts.job != nil && job != reset.JobForeign {
		recordJob(p.Object, string(p.Facts.job.UID), c.Clock.Now())
	}
	concluded(p.Object, r, job, c.Clock.Now())
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	p.Log.Info("reset result determined", "succeeded", r.Succeeded, "reason", r.Reason, "why", r.Message)
	c.Here("janitor/concluded")
	return nil
}

// complete writes the outcome.
func (c *Reconciler) complete(ctx context.Context, p *pass, v repair.Verdict) error {
	now := c.Clock.Now()
	completed(p.Object, v.Reason, now)
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	c.Here("janitor/completed")
	s := p.Object.Status
	requested, teardown := max(0, now.Sub(p.Object.CreationTimestamp.Time)), max(0, now.Sub(timeOf(s.TeardownTime)))
	if s.TeardownTime == nil {
		teardown = 0
	}
	if s.Result.Reason == v1alpha1.ReasonSessionOver {
		c.Count(reconciler.StatusSessionOver)
	} else {
		c.ended(s.Result.Succeeded, s.Result.Reason, requested, teardown)
	}
	p.Log.Info("reset ended", "succeeded", s.Result.Succeeded, "reason", s.Result.Reason, "why", s.Result.Message)
	return nil
}
