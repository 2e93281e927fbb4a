package gpureset

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// begin writes the finalizer, then the start and the machine that is meant.
func (c *Reconciler) begin(ctx context.Context, p *pass, _ repair.Verdict) error {
	before := p.object.DeepCopy()
	if controllerutil.AddFinalizer(p.object, v1alpha1.ClaimFinalizer) {
		if err := c.patch(ctx, p.object, before); err != nil {
			return err
		}
	}
	first := p.object.Status.StartTime == nil
	begin(p.object, p.node, c.Clock.Now())
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	if first {
		c.Metrics.Count(action, "started")
		p.log.Info("reset was taken up", "gpus", p.object.GPUs(), "boot", p.object.Status.BootID)
	}
	c.here("janitor/intent-written")
	return nil
}

// claim writes the object's uid on the Node, while that shows its session.
func (c *Reconciler) claim(ctx context.Context, p *pass, _ repair.Verdict) error {
	return c.mark(ctx, p, "janitor/claimed", func(n *corev1.Node) {
		nodemark.SetClaim(n, string(p.object.UID))
	})
}

// mark changes the Node that was read, and no other. One that is gone is seen to be
// at the next look.
func (c *Reconciler) mark(ctx context.Context, p *pass, point string, change func(*corev1.Node)) error {
	if _, err := kube.PatchNode(ctx, c.Cluster, p.node, change); err != nil && !errors.Is(err, kube.ErrGone) {
		return err
	}
	c.here(point)
	return nil
}

// note writes down the services as they are.
func (c *Reconciler) note(ctx context.Context, p *pass, _ repair.Verdict) error {
	noted(p.object, c.Services.facts(p.node, p.pods), c.Clock.Now())
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	c.here("janitor/services-noted")
	return nil
}

// tearDown takes the services that were noted off the node, which shows in the same
// write that it was done.
func (c *Reconciler) tearDown(ctx context.Context, p *pass, _ repair.Verdict) error {
	p.log.Info("GPU services are taken off the node")
	return c.mark(ctx, p, "janitor/torn-down", func(n *corev1.Node) {
		for _, s := range p.object.Status.Services {
			nodemark.Label(n, s.Label, reset.Off)
		}
		nodemark.SetReset(n, string(p.object.UID))
	})
}

// restore gives the labels back. One that somebody has changed since stays.
func (c *Reconciler) restore(ctx context.Context, p *pass, v repair.Verdict) error {
	if v.Reason == repair.Deleted && terminating(p.object, c.Clock.Now()) {
		if err := c.write(ctx, p.object); err != nil {
			return err
		}
	}
	p.log.Info("GPU services are given back to the node")
	return c.mark(ctx, p, "janitor/restored", func(n *corev1.Node) {
		for _, s := range p.object.Status.Services {
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
	jobNoted(p.object, c.Tool.Namespace, c.Clock.Now())
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	c.here("janitor/job-noted")
	return nil
}

// createJob creates the Job. That it has one name makes a second one impossible; an
// answer that is lost is found out at the next look.
func (c *Reconciler) createJob(ctx context.Context, p *pass, _ repair.Verdict) error {
	c.Events.Write(ctx, eventrecorder.Node(p.node.Name), corev1.EventTypeNormal, "GPUReset",
		fmt.Sprintf("%s %s resets %s%s", Kind, p.object.Name, named(p.object), reconciler.Asker(p.object)))
	// Nothing may be created once another replica could lead.
	fenced, cancel := lease.FenceCall(ctx)
	defer cancel()
	if err := fenced.Err(); err != nil {
		return fmt.Errorf("creating the job: %w", err)
	}
	_, err := c.Cluster.BatchV1().Jobs(c.Tool.Namespace).Create(fenced, c.Tool.job(p.object), metav1.CreateOptions{})
	c.here("janitor/job-created")
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // the next look says whose it is
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return c.end(ctx, p, v1alpha1.GPUResetResult{
			Reason: v1alpha1.ReasonResetJobCreationFailed, Message: "the API server refused the job: " + err.Error(),
		})
	case err != nil:
		return fmt.Errorf("creating the job: %w", err)
	}
	p.log.Info("reset job was created", "job", p.object.JobName())
	return nil
}

// seeJob writes down that the Job exists.
func (c *Reconciler) seeJob(ctx context.Context, p *pass, _ repair.Verdict) error {
	jobSeen(p.object, string(p.job.UID), c.Clock.Now())
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	c.here("janitor/job-seen")
	return nil
}

// conclude writes down how the reset ends once the services are back.
func (c *Reconciler) conclude(ctx context.Context, p *pass, v repair.Verdict) error {
	return c.end(ctx, p, resultOf(v.Reason, p.object, p.job))
}

func (c *Reconciler) end(ctx context.Context, p *pass, r v1alpha1.GPUResetResult) error {
	job := jobFacts(p.object, p.job)
	if p.job != nil && job != reset.JobForeign {
		jobSeen(p.object, string(p.job.UID), c.Clock.Now())
	}
	concluded(p.object, r, job, c.Clock.Now())
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	p.log.Info("how the reset ends is decided", "succeeded", r.Succeeded, "reason", r.Reason, "why", r.Message)
	c.here("janitor/concluded")
	return nil
}

// complete writes the outcome.
func (c *Reconciler) complete(ctx context.Context, p *pass, v repair.Verdict) error {
	now := c.Clock.Now()
	completed(p.object, v.Reason, now)
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	c.here("janitor/completed")
	s := p.object.Status
	requested, teardown := max(0, now.Sub(p.object.CreationTimestamp.Time)), max(0, now.Sub(timeOf(s.TeardownTime)))
	if s.TeardownTime == nil {
		teardown = 0
	}
	if s.Result.Reason == v1alpha1.ReasonSessionOver {
		c.Metrics.Count(action, "session_over")
	} else {
		c.Metrics.ended(s.Result.Succeeded, s.Result.Reason, requested, teardown)
	}
	p.log.Info("reset is over", "succeeded", s.Result.Succeeded, "reason", s.Result.Reason, "why", s.Result.Message)
	return nil
}

// unclaim drops the claim, if it is ours, then the finalizer.
func (c *Reconciler) unclaim(ctx context.Context, p *pass, v repair.Verdict) error {
	if p.node != nil && nodemark.Read(p.node).Claim == string(p.object.UID) {
		err := c.mark(ctx, p, "janitor/unclaimed", func(n *corev1.Node) { nodemark.SetClaim(n, "") })
		if err != nil {
			return err
		}
	}
	before := p.object.DeepCopy()
	controllerutil.RemoveFinalizer(p.object, v1alpha1.ClaimFinalizer)
	if err := c.patch(ctx, p.object, before); err != nil {
		return err
	}
	if v.Reason == repair.Deleted {
		c.Metrics.Count(action, "deleted")
		p.log.Info("object was deleted before its end")
	}
	return nil
}

// expire removes the object that was read, and no other.
func (c *Reconciler) expire(ctx context.Context, p *pass) error {
	uid, version := p.object.GetUID(), p.object.GetResourceVersion()
	err := c.Objects.Delete(ctx, p.object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err := reconciler.LostRace(err, "removing the object"); err != nil {
		return err
	}
	c.Metrics.Count(action, "expired")
	return nil
}

// wait shows what the object waits for, if that is news.
func (c *Reconciler) wait(ctx context.Context, p *pass, v repair.Verdict) error {
	if p.object.Status.CompletionTime != nil || !waiting(p.object, p.node, v, c.Clock.Now()) {
		return nil
	}
	if v.Reason == repair.SessionUnknown {
		c.Metrics.Count(action, "session_unknown")
	}
	return c.write(ctx, p.object)
}

// patch writes the difference of the metadata under before's resourceVersion.
func (c *Reconciler) patch(ctx context.Context, object, before *v1alpha1.GPUReset) error {
	guarded := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return reconciler.LostRace(c.Objects.Patch(ctx, object, guarded), "writing the finalizer")
}
