package rebootnode

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/api/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/internal/notice"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/reboot"
)

// begin writes the finalizer, then start and intent.
func (c *Controller) begin(ctx context.Context, p *pass) error {
	if before := p.object.DeepCopy(); controllerutil.AddFinalizer(p.object, v1alpha1.ClaimFinalizer) {
		if err := c.patch(ctx, p.object, before); err != nil {
			return err
		}
	}
	first := p.object.Status.StartTime == nil
	begin(p.object, c.intended(p.node), c.Clock.Now())
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	if first {
		c.Metrics.count(statusStarted)
		p.log.Info("reboot was taken up", "key", p.object.Status.IdempotencyKey, "boot", p.object.Status.PreRebootBootID)
	}
	c.here("janitor/intent-written")
	return nil
}

// claim writes the object's uid on the Node, under the resourceVersion that
// showed its session.
func (c *Controller) claim(ctx context.Context, p *pass) error {
	node, err := kube.PatchNode(ctx, c.Nodes, p.node, func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[nodemark.RepairAnnotation] = string(p.object.UID)
	})
	if err != nil {
		return gone(err, p)
	}
	p.node = node
	c.here("janitor/claimed")
	return nil
}

// gone turns the certain absence of the Node into a fact of the pass.
func gone(err error, p *pass) error {
	if errors.Is(err, kube.ErrGone) {
		p.node = nil
		return nil
	}
	return err
}

// send notes the signal, sends it and notes the answer.
func (c *Controller) send(ctx context.Context, p *pass) error {
	if err := c.note(ctx, p); err != nil {
		return err
	}
	c.here("janitor/armed")
	c.Notices.Post(ctx, notice.OfNode(p.node), notice.RebootSignal, c.announcement(p.object))
	// Nothing may be sent once another replica could lead.
	fenced, cancel := lease.Fence(ctx)
	defer cancel()
	if err := fenced.Err(); err != nil {
		return fmt.Errorf("sending the signal: %w", err)
	}
	id, err := c.Plugin.Reboot(fenced, provider.Signal{Node: p.object.Spec.NodeName, Key: c.key(p.object), Force: p.object.Spec.Force})
	c.here("janitor/signal-sent")
	c.here("janitor/done")
	retry := c.answered(ctx, p, id, err)
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	c.here("janitor/stamped")
	return retry
}

// answered notes the plugin's answer; its error asks for another try.
func (c *Controller) answered(ctx context.Context, p *pass, id string, err error) error {
	now := c.Clock.Now()
	if err == nil {
		acknowledge(p.object, now, id)
		c.Metrics.signal(resultAcknowledged)
		p.log.Info("reboot signal was sent", "request", id)
		return nil
	}
	failure, known := errors.AsType[*provider.Error](err)
	if !known {
		failure = &provider.Error{Delivery: provider.Unknown, Message: err.Error()}
	}
	c.complain(ctx, p, failure)
	switch failure.Delivery {
	case provider.NotSent:
		disarm(p.object, now, failure)
		c.Metrics.signal(resultNotSent)
		if failure.RetryAfter > 0 {
			p.log.Info("plugin asked to be left alone", "for", failure.RetryAfter, "error", failure)
			return nil
		}
		return fmt.Errorf("sending the signal: %w", err)
	case provider.Refused:
		refuse(p.object, now, failure)
		c.Metrics.signal(resultRefused)
		c.Metrics.count(statusFailed)
		p.log.Warn("plugin refused the reboot", "error", failure)
	case provider.Unknown:
		unanswered(p.object, now, failure)
		c.Metrics.signal(resultUnknown)
		p.log.Warn("reboot signal got no answer; the boot id decides", "error", failure)
	}
	return nil
}

// announcement says why a node is rebooted.
func (c *Controller) announcement(object *v1alpha1.RebootNode) string {
	var text strings.Builder
	text.WriteString("RebootNode " + object.Name + " asks the provider for a reboot")
	for _, mark := range []struct{ name, key string }{
		{"record", v1alpha1.RecordAnnotation}, {"session", nodemark.SessionAnnotation}, {"group", v1alpha1.GroupAnnotation},
	} {
		if value := object.Annotations[mark.key]; value != "" {
			text.WriteString("; " + mark.name + " " + value)
		}
	}
	return text.String()
}

// complain shows on the object what is wrong with the plugin.
func (c *Controller) complain(ctx context.Context, p *pass, failure *provider.Error) {
	reason := notice.PluginUnavailable
	if failure.Delivery == provider.Refused {
		reason = notice.PluginRefused
	}
	about := notice.Object{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "RebootNode", Name: p.object.Name, UID: p.object.UID,
	}
	c.Notices.Post(ctx, about, reason, failure.Error())
}

// ask asks the plugin about the machine. No answer is a no.
func (c *Controller) ask(ctx context.Context, p *pass) {
	up, err := c.Plugin.Ready(ctx, p.object.Spec.NodeName, p.object.Status.RequestID)
	if err != nil {
		p.log.Warn("plugin did not answer", "error", err)
	}
	p.plugin = reboot.SaysNotReady
	if err == nil && up {
		p.plugin = reboot.SaysReady
	}
}

// wait shows what the object waits for, if that is news.
func (c *Controller) wait(ctx context.Context, p *pass, v reboot.Verdict) error {
	if !waiting(p.object, p.node, v, c.Clock.Now()) {
		return nil
	}
	return c.write(ctx, p.object)
}

// end writes the outcome.
func (c *Controller) end(ctx context.Context, p *pass, v reboot.Verdict) error {
	now := c.Clock.Now()
	reason, message := "", ""
	if v.Step == reboot.Succeed {
		succeed(p.object, p.node, now)
	} else {
		reason, message = outcomeOf(v, p.object)
		fail(p.object, now, reason, message)
	}
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	c.here("janitor/completed")
	switch v.Step {
	case reboot.Succeed:
		c.Metrics.count(statusSucceeded)
		c.Metrics.mttr.WithLabelValues(action).Observe(since(p.object, now).Seconds())
		p.log.Info("node was rebooted", "boot", p.object.Status.ObservedBootID)
	case reboot.SessionOver:
		c.Metrics.count(statusSessionOver)
		p.log.Info("reboot was dropped", "why", message)
	default:
		c.Metrics.count(statusFailed)
		p.log.Warn("reboot failed", "reason", reason, "why", message)
	}
	return nil
}

// unclaim drops the claim, if it is ours, then the finalizer.
func (c *Controller) unclaim(ctx context.Context, p *pass, v reboot.Verdict) error {
	uid := string(p.object.UID)
	if p.node != nil && p.node.Annotations[nodemark.RepairAnnotation] == uid {
		node, err := kube.PatchNode(ctx, c.Nodes, p.node, func(n *corev1.Node) {
			delete(n.Annotations, nodemark.RepairAnnotation)
		})
		if err := gone(err, p); err != nil {
			return err
		}
		p.node = node
	}
	c.here("janitor/unclaimed")
	before := p.object.DeepCopy()
	controllerutil.RemoveFinalizer(p.object, v1alpha1.ClaimFinalizer)
	if err := c.patch(ctx, p.object, before); err != nil {
		return err
	}
	if v.Reason == reboot.Deleted {
		c.Metrics.count(statusDeleted)
		p.log.Info("object was deleted before its end")
	}
	return nil
}

// expire removes the object that was read, and no other.
func (c *Controller) expire(ctx context.Context, p *pass) error {
	err := c.Objects.Delete(ctx, p.object, client.Preconditions{UID: &p.object.UID, ResourceVersion: &p.object.ResourceVersion})
	if err := lostRace(err, "removing the object"); err != nil {
		return err
	}
	c.Metrics.count(statusExpired)
	p.log.Info("object was removed at the end of its time to live")
	return nil
}

// patch writes the difference of the metadata under before's resourceVersion.
func (c *Controller) patch(ctx context.Context, object, before *v1alpha1.RebootNode) error {
	guarded := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return lostRace(c.Objects.Patch(ctx, object, guarded), "writing the finalizer")
}
