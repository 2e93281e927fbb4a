package reconciler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// leaveShare is the part of ResendAfter within which a signal must have left
// after it was noted; the time to the next one is counted from its end, so that
// it is never too short.
const leaveShare = 20

// reply is what became of a signal.
type reply struct {
	id  string
	err error
}

// sendSignal sends the signal, unless the note of it took too long.
func (c *Reconciler) sendSignal(ctx context.Context, p *pass, leaveBy time.Time) (string, error) {
	if c.Clock.Now().After(leaveBy) {
		return "", &provider.Error{Delivery: provider.NotSent, Message: "writing the status took too long"}
	}
	if why, on := c.Pause.On(); on {
		return "", &provider.Error{Delivery: provider.NotSent, Message: why}
	}
	_, force := p.Object.Target()
	return c.kind.send(ctx, c.plugin, provider.Signal{Node: v1alpha1.NodeOf(p.Object), Key: p.Object.Progress().IdempotencyKey, Force: force})
}

// send announces the signal, notes it, sends it and notes the answer.
func (c *Reconciler) send(ctx context.Context, p *pass, _ repair.Verdict) error {
	c.Events.Write(ctx, eventrecorder.Node(p.Node.Name), corev1.EventTypeNormal, c.kind.announced, c.announcement(p.Object))
	leaveBy := upToSecond(c.Clock.Now().Add(c.policy.ResendAfter / leaveShare))
	before := earlier{p.Object.Progress().LastSignalAt, p.Object.Progress().NotBefore}
	c.kind.arm(p.Object, c.Clock.Now(), leaveBy)
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	c.Here("janitor/armed")
	// Nothing may be sent once another replica could lead.
	fenced, cancel := lease.FenceCall(ctx)
	defer cancel()
	if err := fenced.Err(); err != nil {
		return fmt.Errorf("sending the signal: %w", err)
	}
	id, err := c.sendSignal(fenced, p, leaveBy)
	c.Here("janitor/signal-sent")
	c.Here("janitor/done")
	retry := c.answered(p, before, reply{id, err})
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	c.Here("janitor/stamped")
	return retry
}

// answered notes the plugin's answer; before is when the signal before left. Its
// error asks for another try.
func (c *Reconciler) answered(p *pass, before earlier, r reply) error {
	now := c.Clock.Now()
	if r.err == nil {
		c.kind.acknowledge(p.Object, now, r.id)
		c.Metrics.signal(c.kind, resultAcknowledged)
		p.Log.Info("signal sent", "request", r.id)
		return nil
	}
	failure, known := errors.AsType[*provider.Error](r.err)
	if !known {
		failure = &provider.Error{Delivery: provider.Unknown, Message: r.err.Error()}
	}
	if c.kind.forGood && failure.Code == codes.NotFound && p.Object.Progress().Signals > 1 {
		// The signal before took effect. The machine is asked for once more.
		failure.Delivery = provider.Unknown
	}
	if failure.Delivery != provider.Unknown || failure.RetryAfter == 0 {
		c.complain(p, failure)
	}
	switch failure.Delivery {
	case provider.NotSent:
		disarm(p.Object, now, before, failure)
		c.Metrics.signal(c.kind, resultNotSent)
		if failure.RetryAfter > 0 {
			p.Log.Info("delay requested by the plugin", "for", failure.RetryAfter, "error", failure)
			return nil
		}
		return fmt.Errorf("sending the signal: %w", r.err)
	case provider.Refused:
		c.kind.refuse(p.Object, now, failure)
		c.Metrics.signal(c.kind, resultRefused)
		c.Count(StatusFailed)
		p.Log.Warn("signal refused by the plugin", "error", failure)
	case provider.Unknown:
		unanswered(p.Object, now, failure)
		c.Metrics.signal(c.kind, resultUnknown)
		p.Log.Warn("signal not answered, its effect decides", "error", failure)
	}
	return nil
}

// announcement states why a node is repaired.
func (c *Reconciler) announcement(object v1alpha1.Repair) string {
	return c.kind.Name + " " + object.GetName() + " requests a provider action: " + c.kind.action + Requester(object)
}

// Requester returns what an object was created for: record, session and group, if it names them.
func Requester(object metav1.Object) string {
	var text strings.Builder
	for _, mark := range []struct{ name, key string }{
		{"record", v1alpha1.RecordAnnotation}, {"session", nodemark.SessionAnnotation}, {"group", v1alpha1.GroupAnnotation},
	} {
		if value := object.GetAnnotations()[mark.key]; value != "" {
			text.WriteString(", " + mark.name + " " + value)
		}
	}
	return text.String()
}

// complain shows on the object what is wrong with the plugin.
func (c *Reconciler) complain(p *pass, failure *provider.Error) {
	reason := unavailableReason
	if failure.Delivery == provider.Refused {
		reason = refusedReason
	}
	if failure.Unresponsive {
		reason = v1alpha1.ReasonNodeUnresponsive
	}
	c.Events.Event(corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: c.kind.Name, Name: p.Object.GetName(), UID: p.Object.GetUID(),
	}, corev1.EventTypeWarning, reason, failure.Error())
}

// queryPlugin asks the plugin about the machine. No answer is a no.
func (c *Reconciler) queryPlugin(ctx context.Context, p *pass, _ repair.Verdict) error {
	state, err := c.plugin.State(ctx, v1alpha1.NodeOf(p.Object), p.Object.Progress().RequestID)
	if err != nil {
		p.Log.Warn("no answer received from the plugin", "error", err)
	}
	p.Facts = map[provider.State]repair.Plugin{
		provider.Up: repair.ReportsReady, provider.Gone: repair.ReportsDeleted, provider.NoOpinion: repair.ReportsNothing,
	}[state]
	if err != nil || p.Facts == repair.NotQueried {
		p.Facts = repair.ReportsNotReady
	}
	c.Here("janitor/asked")
	return nil
}

// deleteNode removes the Node that was read, and no other, once its machine is
// gone.
func (c *Reconciler) deleteNode(ctx context.Context, p *pass, _ repair.Verdict) error {
	err := c.Nodes.CoreV1().Nodes().Delete(ctx, p.Node.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &p.Node.UID, ResourceVersion: &p.Node.ResourceVersion},
	})
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("removing the node: %w", kube.ErrConflict)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("removing node %s: %w", p.Node.Name, err)
	}
	p.Log.Info("node removed, its machine no longer exists")
	p.Node = nil
	c.Here("janitor/node-deleted")
	return nil
}
