package reconciler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// observation is what a pass sees, and the leases as they are stored.
type observation struct {
	triage.View
	leases map[string]*coordinationv1.Lease
}

// observe reads what a pass over a check needs, from caches but for what was made a
// moment ago.
func (c *Reconciler) observe(ctx context.Context, check *v1alpha1.NodeHealthCheck) (*observation, error) {
	o := &observation{View: triage.View{
		Check: check, DryRun: c.DryRun, Unread: map[schema.GroupVersionKind]bool{}, Leases: map[string]triage.Lease{},
	}, leases: map[string]*coordinationv1.Lease{}}
	if why, on := c.Pause.On(); on {
		o.Pause = why
	}
	selector, problem := selectorOf(check)
	if problem != nil {
		o.Problem = problem
		blind(o)
		return o, nil
	}
	if err := c.nodes(ctx, o, selector); err != nil {
		return nil, err
	}
	if err := c.steps(ctx, o); err != nil {
		return nil, err
	}
	if err := c.remediations(ctx, o); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(o.Nodes, triage.IsControlPlane) {
		if err := c.controlPlane(ctx, o); err != nil {
			return nil, err
		}
	}
	return o, c.claims(ctx, o)
}

// selectorOf is the check's selector, or why it means nothing.
func selectorOf(check *v1alpha1.NodeHealthCheck) (labels.Selector, *triage.Problem) {
	selector, err := check.Spec.Selector.Labels()
	if err != nil {
		return nil, &triage.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: err.Error()}
	}
	return selector, nil
}

// blind keeps everything that the status lists: nothing else is known.
func blind(o *observation) {
	for _, u := range o.Check.Status.UnhealthyNodes {
		for _, r := range u.Remediations {
			o.Unread[schema.FromAPIVersionAndKind(r.Resource.APIVersion, r.Resource.Kind)] = true
		}
	}
}

// nodes are those that the selector matches.
func (c *Reconciler) nodes(ctx context.Context, o *observation, selector labels.Selector) error {
	list := &corev1.NodeList{}
	if err := c.cached.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for i := range list.Items {
		o.Nodes = append(o.Nodes, &list.Items[i])
	}
	return nil
}

// remediations are the objects of the check's kinds.
func (c *Reconciler) remediations(ctx context.Context, o *observation) error {
	seen := map[schema.GroupVersionKind]bool{}
	for _, ref := range references(o.Check) {
		kind := remediationKind(ref)
		if seen[kind] || kind.Kind == "" {
			continue
		}
		seen[kind] = true
		switch err := c.kinds.follow(ctx, kind, false); {
		case isNoKind(err): // then there are none of its objects either
			continue
		case err != nil && !lasting(err):
			return err
		case err != nil:
			o.Unread[kind] = true
			o.Problem = &triage.Problem{
				Reason: v1alpha1.ReasonTemplateNotFound, Retry: true,
				Message: fmt.Sprintf("%s objects cannot be read: %v", kind.Kind, err),
			}
			continue
		}
		objects, err := c.objects(ctx, kind, nil)
		if err != nil {
			return err
		}
		for i := range objects {
			o.Remediations = append(o.Remediations, factsOf(&objects[i], o.Check.UID))
		}
	}
	return c.recent(ctx, o, seen)
}

// objects of a kind in the cache, with labels if some are given.
func (c *Reconciler) objects(ctx context.Context, kind schema.GroupVersionKind, with client.MatchingLabels) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.cached.List(ctx, list, with, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing %s objects: %w", kind.Kind, err)
	}
	return list.Items, nil
}

// recent adds what was made a moment ago and what the cache does not show yet.
func (c *Reconciler) recent(ctx context.Context, o *observation, kinds map[schema.GroupVersionKind]bool) error {
	shown := map[string]bool{}
	for _, r := range o.Remediations {
		shown[r.UID] = true
	}
	for id, r := range c.made {
		if !kinds[id.kind] {
			continue
		}
		if shown[r.UID] {
			delete(c.made, id)
			continue
		}
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(id.kind)
		err := c.Live.Get(ctx, id.objectKey(), now)
		if apierrors.IsNotFound(err) || err == nil && string(now.GetUID()) != r.UID {
			delete(c.made, id)
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the recently created %s %s: %w", id.kind.Kind, id.name, err)
		}
		o.Remediations = append(o.Remediations, factsOf(now, o.Check.UID))
	}
	return nil
}

// controlPlane finds the control-plane nodes that have a remediation of any check.
func (c *Reconciler) controlPlane(ctx context.Context, o *observation) error {
	checks := rawChecks() // those that can not be decoded have remediations too
	if err := c.cached.List(ctx, checks, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the checks: %w", err)
	}
	seen := map[schema.GroupVersionKind]bool{}
	for i := range checks.Items {
		for _, ref := range rawReferences(&checks.Items[i]) {
			kind := remediationKind(ref)
			if seen[kind] || kind.Kind == "" {
				continue
			}
			seen[kind] = true
			nodes, err := c.controlPlaneOf(ctx, kind)
			if lasting(err) { // of another check, and no reason to leave the other nodes alone
				o.ControlPlaneUnread = fmt.Sprintf("NodeHealthCheck %s: %v", checks.Items[i].GetName(), err)
				continue
			}
			if err != nil {
				return err
			}
			o.ControlPlane = append(o.ControlPlane, nodes...)
		}
	}
	o.ControlPlane = slices.AppendSeq(o.ControlPlane, maps.Keys(c.begun))
	for _, r := range c.made {
		node := &corev1.Node{}
		if c.cached.Get(ctx, types.NamespacedName{Name: r.Node}, node) == nil && triage.IsControlPlane(node) {
			o.ControlPlane = append(o.ControlPlane, r.Node)
		}
	}
	return nil
}

// controlPlaneOf are those that have a remediation of one kind.
func (c *Reconciler) controlPlaneOf(ctx context.Context, kind schema.GroupVersionKind) (nodes []string, err error) {
	if err := c.kinds.follow(ctx, kind, false); isNoKind(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	objects, err := c.objects(ctx, kind, client.MatchingLabels{v1alpha1.ControlPlaneLabel: ""})
	for i := range objects {
		nodes = append(nodes, factsOf(&objects[i], "").Node)
	}
	return nodes, err
}

// claims are the leases of nodes. Their names are lower-case; nodes' names are too.
func (c *Reconciler) claims(ctx context.Context, o *observation) error {
	list := &coordinationv1.LeaseList{}
	if err := c.cached.List(ctx, list, client.InNamespace(c.Claims.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the leases of nodes: %w", err)
	}
	for i := range list.Items {
		l := &list.Items[i]
		if node, is := strings.CutPrefix(l.Name, nodelease.Name("")); is {
			o.leases[node], o.Leases[node] = l, leaseOf(l)
		}
	}
	return nil
}
