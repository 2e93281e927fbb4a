package reconciler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// objectFacts are what a decision needs of the object.
func objectFacts(object v1alpha1.Repair) repair.Object {
	s := object.Progress()
	_, givenUp := object.GetAnnotations()[v1alpha1.TimedOutAnnotation]
	o := repair.Object{
		UID:            string(object.GetUID()),
		Unnamed:        v1alpha1.NodeOf(object) == "",
		Abandoned:      givenUp,
		Session:        object.GetAnnotations()[nodemark.SessionAnnotation],
		Deleting:       !object.GetDeletionTimestamp().IsZero(),
		Finalizer:      controllerutil.ContainsFinalizer(object, v1alpha1.ClaimFinalizer),
		Completed:      s.CompletionTime != nil,
		Key:            s.IdempotencyKey,
		RemovedByOther: v1alpha1.OwnedByNodeHealthCheck(object),
		PreBoot:        *object.BootID(),
		Signals:        int(s.Signals),

		CompletedAt: timeOf(s.CompletionTime),
		Started:     timeOf(s.StartTime),
		SignalAt:    timeOf(s.SignalSentAt),
		LastAt:      timeOf(s.LastSignalAt),
		NotBefore:   timeOf(s.NotBefore),
	}
	if s.Machine != nil {
		o.Machine = record.NodeIdentity{UID: s.Machine.UID, ProviderID: s.Machine.ProviderID, SystemUUID: s.Machine.SystemUUID}
	}
	if sent := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionSignalSent); sent != nil && sent.Status == "True" {
		o.Acknowledged = true
		if o.SignalAt.IsZero() { // manual mode: somebody else sent it
			o.SignalAt = sent.LastTransitionTime.Time
		}
	}
	return o
}

// timeOf is a time that may not be set.
func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// NodeFacts are what a decision needs of the Node, but for what the configuration
// excludes; nil is certain absence.
func NodeFacts(node *corev1.Node) repair.Node {
	if node == nil {
		return repair.Node{}
	}
	m := nodemark.Read(node)
	return repair.Node{
		Exists: true, Identity: kube.NodeIdentity(node), Ready: kube.NodeReady(node),
		Session: m.Session, Schedulable: m.Schedulable, Missing: m.Missing, Excluded: m.OptedOut, Unknown: len(m.Unknown) > 0, Claim: m.Claim,
	}
}

// since is the time from an object's creation, which is a person's or the
// remediation's request, to now.
func since(object v1alpha1.Repair, now time.Time) time.Duration {
	return max(0, now.Sub(object.GetCreationTimestamp().Time))
}
