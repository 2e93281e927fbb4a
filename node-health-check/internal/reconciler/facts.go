package reconciler

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// factsOf are what decisions depend on of a remediation; check is the uid of the
// check that asks.
func factsOf(o *unstructured.Unstructured, check types.UID) triage.Remediation {
	marks := o.GetAnnotations()
	r := triage.Remediation{
		Kind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()),
		Node: marks[v1alpha1.NodeNameAnnotation], Template: marks[v1alpha1.TemplateNameAnnotation],
		Created: o.GetCreationTimestamp().Time, Deleting: o.GetDeletionTimestamp() != nil,
		Owned:       slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return isCheck(ref) && ref.UID == check }),
		AgeReported: marks[v1alpha1.OldRemediationAnnotation] != "",
	}
	if r.Node == "" {
		r.Node = o.GetName()
	}
	_, r.Abandoned = marks[v1alpha1.TimedOutAnnotation]
	var since string
	if since, r.Delayed = marks[v1alpha1.HealthyDelayAnnotation]; r.Delayed {
		if at, err := time.Parse(time.RFC3339, since); err == nil {
			r.HealthySince = at
		}
	}
	r.Succeeded = condition(o, v1alpha1.ConditionSucceeded)
	r.DeletionExpected = condition(o, v1alpha1.ConditionDeletionExpected) == string(metav1.ConditionTrue)
	return r
}

// isCheck reports whether an owner is a NodeHealthCheck.
func isCheck(ref metav1.OwnerReference) bool {
	return ref.Kind == v1alpha1.Kind && ref.APIVersion == v1alpha1.GroupVersion.String()
}

// condition is the status of a condition of an object of any kind; empty without it.
func condition(o *unstructured.Unstructured, kind string) string {
	c, _ := healthrule.ConditionOf(o, kind)
	return c.Status
}

// leaseOf is a node's lease as decisions see it.
func leaseOf(l *coordinationv1.Lease) triage.Lease {
	out := triage.Lease{
		Holder:   ptr.Deref(l.Spec.HolderIdentity, ""),
		Duration: time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second,
	}
	if l.Spec.AcquireTime != nil {
		out.Acquired = l.Spec.AcquireTime.Time
	}
	if l.Spec.RenewTime != nil {
		out.Renewed = l.Spec.RenewTime.Time
	}
	return out
}

// slim drops of a Node what nobody here reads, to keep the cache small.
func slim(object any) (any, error) {
	if n, ok := object.(*corev1.Node); ok {
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].Message = ""
		}
	}
	return kube.Strip(object)
}
