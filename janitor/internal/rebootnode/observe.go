package rebootnode

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/api/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/reboot"
)

// nodeHealthCheck is the kind of an owner that removes its objects itself.
const nodeHealthCheck = "NodeHealthCheck"

// objectFacts are what a decision needs of the object.
func objectFacts(object *v1alpha1.RebootNode) reboot.Object {
	s := object.Status
	o := reboot.Object{
		UID:       string(object.UID),
		Session:   object.Annotations[nodemark.SessionAnnotation],
		Deleting:  !object.DeletionTimestamp.IsZero(),
		Finalizer: controllerutil.ContainsFinalizer(object, v1alpha1.ClaimFinalizer),
		Completed: s.CompletionTime != nil,
		Key:       s.IdempotencyKey,
		PreBoot:   s.PreRebootBootID,
		Signals:   int(s.Signals),
	}
	if s.CompletionTime != nil {
		o.CompletedAt = s.CompletionTime.Time
	}
	o.Kept = slices.ContainsFunc(object.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == nodeHealthCheck })
	if s.StartTime != nil {
		o.Started = s.StartTime.Time
	}
	if s.Machine != nil {
		o.Machine = record.NodeIdentity{UID: s.Machine.UID, ProviderID: s.Machine.ProviderID, SystemUUID: s.Machine.SystemUUID}
	}
	if s.SignalSentAt != nil {
		o.SignalAt = s.SignalSentAt.Time
	}
	if s.NotBefore != nil {
		o.NotBefore = s.NotBefore.Time
	}
	if sent := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionSignalSent); sent != nil && sent.Status == "True" {
		o.Acknowledged = true
		if o.SignalAt.IsZero() { // manual mode: somebody else sent it
			o.SignalAt = sent.LastTransitionTime.Time
		}
	}
	return o
}

// nodeFacts are what a decision needs of the Node; nil is certain absence.
func nodeFacts(node *corev1.Node) reboot.Node {
	if node == nil {
		return reboot.Node{}
	}
	return reboot.Node{
		Exists:      true,
		Identity:    kube.NodeIdentity(node),
		Ready:       kube.NodeReady(node),
		Session:     node.Annotations[nodemark.SessionAnnotation],
		Schedulable: schedulable(node),
		Excluded:    nodemark.OptedOut(node.Labels),
		Claim:       node.Annotations[nodemark.RepairAnnotation],
	}
}

// schedulable says whether nothing keeps workloads off the Node: it is neither
// cordoned nor bears a NoSchedule or NoExecute taint of the session. An
// annotation that somebody broke names no taint.
func schedulable(node *corev1.Node) bool {
	if node.Spec.Unschedulable {
		return false
	}
	var ours []record.Taint
	if json.Unmarshal([]byte(node.Annotations[nodemark.QuarantineHealthEventAppliedTaints]), &ours) != nil {
		return true
	}
	return !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule &&
			slices.Contains(ours, record.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	})
}

// since is the time from an object's creation, which is a person's or the
// remediation's request, to now.
func since(object *v1alpha1.RebootNode, now time.Time) time.Duration {
	return max(0, now.Sub(object.CreationTimestamp.Time))
}
