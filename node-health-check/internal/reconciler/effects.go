package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// carryOut does the acts of a plan, several at once, with those of other checks; one
// that fails holds no other up.
func (c *Reconciler) carryOut(ctx context.Context, o *observation, p triage.Plan) []triage.Outcome {
	outcomes := make([]triage.Outcome, len(p.Acts))
	var group errgroup.Group
	for i, a := range p.Acts {
		c.slots <- struct{}{}
		group.Go(func() error {
			defer func() { <-c.slots }()
			ctx, cancel := context.WithTimeout(ctx, callLimit)
			defer cancel()
			outcomes[i] = c.act(ctx, o, a)
			outcomes[i].CutShort = errors.Is(outcomes[i].Err, context.Canceled)
			if made := outcomes[i].Made; made != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.made[keyOf(*made)] = *made
			}
			return nil
		})
	}
	_ = group.Wait() // failures are outcomes
	return outcomes
}

// act does one act, as the leader only: one that led before would drop a lease whose
// remediation it does not know of.
func (c *Reconciler) act(ctx context.Context, o *observation, a triage.Act) triage.Outcome {
	now := c.Clock.Now().UTC().Format(time.RFC3339)
	out := triage.Outcome{Act: a}
	ctx, cancel := lease.FenceCall(ctx)
	defer cancel()
	if out.Err = ctx.Err(); out.Err != nil {
		return out
	}
	switch a.Do {
	case triage.Begin:
		c.begin(ctx, o, &out)
	case triage.Remove:
		out.Err = c.remove(ctx, a.Remediation)
	case triage.NotifyRemediator:
		out.Err = c.annotate(ctx, a.Remediation, v1alpha1.TimedOutAnnotation, now)
	case triage.Delay:
		out.Err = c.annotate(ctx, a.Remediation, v1alpha1.HealthyDelayAnnotation, now)
	case triage.Undelay:
		out.Err = c.annotate(ctx, a.Remediation, v1alpha1.HealthyDelayAnnotation, nil)
	case triage.Age:
		if out.Err = c.annotate(ctx, a.Remediation, v1alpha1.OldRemediationAnnotation, "flagon"); out.Err == nil {
			c.Metrics.old(a.Node, a.Remediation.Namespace)
		}
	case triage.Confirm:
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Node}}
		out.Err = c.patch(ctx, node, a.Of.UID, v1alpha1.ConfirmedHealthyAnnotation, nil)
	case triage.Renew:
		out.Err = c.Claims.Renew(ctx, a.LeaseFor, o.leases[a.Node])
	case triage.Release:
		out.Err = c.release(ctx, o, a)
	}
	return out
}

// release drops a lease. That its node has no remediation is asked at the API server:
// the first list of a new leader may come from a server that is behind, and the next holder
// of the lease would begin a second repair.
func (c *Reconciler) release(ctx context.Context, o *observation, a triage.Act) error {
	if a.NoRemediationLeft {
		if len(o.Steps) < len(references(o.Check)) {
			return nil // nobody knows the names of what may be there; the lease runs out by itself
		}
		if err := c.absent(ctx, o, a.Node); err != nil {
			return err
		}
	}
	return c.Claims.Release(ctx, o.leases[a.Node])
}

// absent fails if a node may have a remediation of the check.
func (c *Reconciler) absent(ctx context.Context, o *observation, node string) error {
	for _, s := range o.Steps {
		there := &unstructured.Unstructured{}
		there.SetGroupVersionKind(s.Kind)
		err := c.Live.Get(ctx, types.NamespacedName{Namespace: s.Template.Namespace, Name: s.Name(node)}, there)
		switch {
		case err == nil && factsOf(there, o.Check.UID).Owned:
			return fmt.Errorf("keeping the lease: %s %s exists, but is not in the cache yet", s.Kind.Kind, there.GetName())
		case err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return fmt.Errorf("reading %s %s before the release of the lease: %w", s.Kind.Kind, s.Name(node), err)
		}
	}
	return nil
}

// begin takes the node's lease and makes the remediation.
// What is there already under its name was made by a pass that did not come to its
// end, or by somebody else.
func (c *Reconciler) begin(ctx context.Context, o *observation, out *triage.Outcome) {
	a := out.Act
	err := c.Claims.Take(ctx, a.Of, triage.Holder(o.Check.Name), a.LeaseFor, o.leases[a.Node])
	if taken, is := nodelease.Taken(err); is {
		out.Skipped = string(triage.BlockerLease)
		c.Log.Info("lease acquired", "check", o.Check.Name, "node", a.Node, "holder", taken.Holder)
		return
	}
	if out.Err = err; err != nil {
		return
	}
	c.here("node-health-check/claimed")
	if out.Skipped, out.Err = c.changed(ctx, o, a.Node); out.Skipped != "" || out.Err != nil {
		return
	}
	object := triage.NewRemediation(o.Check, *a.Step, a.Of)
	switch err := c.Live.Create(ctx, object); {
	case err == nil:
		c.here("node-health-check/created")
		made := factsOf(object, o.Check.UID)
		out.Made = &made
	case apierrors.IsAlreadyExists(err):
		c.found(ctx, o, object, out)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		// This object is refused, whatever is done for other nodes.
		out.Blocker, out.Skipped = triage.BlockerRefused, "the API server rejects "+object.GetKind()+" "+object.GetName()+": "+err.Error()
	default:
		out.Err = fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
	}
}

// changed returns why a node needs no remediation any more: what the API server itself
// returns right before the node gets one counts, and not a cache that may be behind.
func (c *Reconciler) changed(ctx context.Context, o *observation, name string) (string, error) {
	n, err := kube.ReadNode(ctx, c.Claims.Client, name)
	if errors.Is(err, kube.ErrNodeDeleted) {
		return "the node no longer exists", nil
	}
	if err != nil {
		return "", err
	}
	now := c.Clock.Now()
	if found := triage.Classify(n.Status.Conditions, o.Check.Spec.UnhealthyConditions, now); found.Health != triage.Unhealthy {
		return "the node is " + string(found.Health) + " now", nil
	}
	// The lease is ours now, and the pass has checked the control-plane nodes.
	unleased := o.View
	unleased.Leases = nil
	return string(triage.Gate(unleased, n, nil, now)), nil
}

// found looks at an object that has the name of a remediation to be.
func (c *Reconciler) found(ctx context.Context, o *observation, wanted *unstructured.Unstructured, out *triage.Outcome) {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(wanted.GroupVersionKind())
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(wanted), there); err != nil {
		out.Err = fmt.Errorf("reading the existing %s %s: %w", wanted.GetKind(), wanted.GetName(), err)
		return
	}
	facts := factsOf(there, o.Check.UID)
	if !facts.Owned {
		out.Blocker, out.Skipped = triage.BlockerForeign, there.GetKind()+" "+there.GetName()+" was not created by this check, waiting for its deletion"
		return
	}
	out.Made, out.Found = &facts, true
}

// remove deletes exactly this remediation.
func (c *Reconciler) remove(ctx context.Context, r *triage.Remediation) error {
	uid := types.UID(r.UID)
	err := c.Live.Delete(ctx, objectOf(r), client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s %s: %w", r.Kind.Kind, r.Name, err)
	}
	return nil
}

// annotate writes one annotation of a remediation; nil takes it off.
func (c *Reconciler) annotate(ctx context.Context, r *triage.Remediation, key string, value any) error {
	return c.patch(ctx, objectOf(r), types.UID(r.UID), key, value)
}

// patch writes one annotation of the object with a uid. An object that is gone, or has
// another uid now, is left as it is.
func (c *Reconciler) patch(ctx context.Context, o client.Object, uid types.UID, key string, value any) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{key: value}}})
	if err != nil {
		return errors.Join(errors.New("encoding an annotation"), err)
	}
	err = c.Live.Patch(ctx, o, client.RawPatch(types.MergePatchType, text))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("writing annotation %s of %s: %w", key, o.GetName(), err)
	}
	return nil
}

// objectOf is a remediation for a client.
func objectOf(r *triage.Remediation) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(r.Kind)
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	return o
}
