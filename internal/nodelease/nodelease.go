// Package nodelease is the claim on a node that all remediators respect: one Lease per node,
// with the names of medik8s, so that its remediators and those of the suite exclude each
// other. A claim ends when it is released, or when its holder has not renewed it for its
// duration.
package nodelease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// DefaultNamespace holds the leases.
const DefaultNamespace = "medik8s-leases"

// prefix of a lease's name.
const prefix = "node-"

// races are how often a lost race is run again.
const races = 3

// Name of a node's lease.
func Name(node string) string { return prefix + strings.ToLower(node) }

// TakenError means that somebody else has the lease.
type TakenError struct{ Node, Holder string }

// Error names both.
func (t *TakenError) Error() string {
	return fmt.Sprintf("the lease of node %s is held by %s", t.Node, t.Holder)
}

// Claims takes and drops leases.
type Claims struct {
	Client kubernetes.Interface
	// Namespace of the leases.
	Namespace string
	Clock     clock.PassiveClock
}

func (c Claims) leases() coordinationclient.LeaseInterface {
	return c.Client.CoordinationV1().Leases(c.Namespace)
}

// Take claims a node for a holder, for d without renewal. known is the lease as it
// was last seen; nil saves a read when there is none. A lease of one's own is
// renewed. The error is a TakenError if somebody else has it.
func (c Claims) Take(ctx context.Context, node *corev1.Node, holder string, d time.Duration, known *coordinationv1.Lease) error {
	for range races {
		var err error
		if known == nil {
			_, err = c.leases().Create(ctx, c.lease(node, holder, d), metav1.CreateOptions{})
		} else if other := c.HeldByOther(known, holder); other != "" {
			return &TakenError{Node: node.Name, Holder: other}
		} else {
			_, err = c.leases().Update(ctx, c.claimed(known, node, holder, d), metav1.UpdateOptions{})
		}
		if err == nil {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && (known == nil || !apierrors.IsNotFound(err)) {
			return fmt.Errorf("taking the lease of node %s: %w", node.Name, err)
		}
		known, err = c.leases().Get(ctx, Name(node.Name), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			known = nil
		} else if err != nil {
			return fmt.Errorf("reading the lease of node %s: %w", node.Name, err)
		}
	}
	return &TakenError{Node: node.Name, Holder: "a concurrent client"}
}

// Renew prolongs a lease that was last seen as known, if nobody has changed it since.
func (c Claims) Renew(ctx context.Context, d time.Duration, known *coordinationv1.Lease) error {
	wanted := known.DeepCopy()
	wanted.Spec.RenewTime, wanted.Spec.LeaseDurationSeconds = c.now(), seconds(d)
	if _, err := c.leases().Update(ctx, wanted, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("renewing lease %s: %w", known.Name, err)
	}
	return nil
}

// Release drops a lease that was last seen as known. One that changed since, or is
// gone, is left.
func (c Claims) Release(ctx context.Context, known *coordinationv1.Lease) error {
	err := c.leases().Delete(ctx, known.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &known.UID, ResourceVersion: &known.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("releasing lease %s: %w", known.Name, err)
	}
	return nil
}

// Drop releases the lease of a node if holder has it.
func (c Claims) Drop(ctx context.Context, node, holder string) error {
	known, err := c.leases().Get(ctx, Name(node), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the lease of node %s: %w", node, err)
	case ptr.Deref(known.Spec.HolderIdentity, "") != holder:
		return nil
	}
	return c.Release(ctx, known)
}

// HeldByOther is who else than holder has a lease now; empty when nobody has.
func (c Claims) HeldByOther(l *coordinationv1.Lease, holder string) string {
	current := ptr.Deref(l.Spec.HolderIdentity, "")
	if current == "" || current == holder || l.Spec.RenewTime == nil {
		return ""
	}
	end := l.Spec.RenewTime.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second)
	if c.Clock.Now().After(end) {
		return ""
	}
	return current
}

// lease is a new one.
func (c Claims) lease(node *corev1.Node, holder string, d time.Duration) *coordinationv1.Lease {
	return c.claimed(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: Name(node.Name), Namespace: c.Namespace}}, node, holder, d)
}

// claimed is a lease in the hands of holder.
func (c Claims) claimed(l *coordinationv1.Lease, node *corev1.Node, holder string, d time.Duration) *coordinationv1.Lease {
	l = l.DeepCopy()
	now, before := c.now(), ptr.Deref(l.Spec.HolderIdentity, "")
	if before != holder {
		l.Spec.AcquireTime = now
		if l.ResourceVersion != "" {
			l.Spec.LeaseTransitions = new(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
		}
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = new(holder), now, seconds(d)
	// With the Node goes its lease.
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	return l
}

func (c Claims) now() *metav1.MicroTime { return new(metav1.NewMicroTime(c.Clock.Now())) }

func seconds(d time.Duration) *int32 { return new(int32(min(d/time.Second, 1<<30))) }

// Taken reports whether an error is a TakenError.
func Taken(err error) (*TakenError, bool) { return errors.AsType[*TakenError](err) }
