package gpureset

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// The functions of this file are the transitions of an object's status. They only
// change the object in memory.

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

// status is an object's status at a time.
type status struct {
	object *v1alpha1.GPUReset
	now    time.Time
}

// set sets one condition and reports whether it changed.
func (s status) set(name string, is metav1.ConditionStatus, reason, message string) bool {
	return meta.SetStatusCondition(&s.object.Status.Conditions, metav1.Condition{
		Type: name, Status: is, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(s.now), ObservedGeneration: s.object.Generation,
	})
}

func (s status) time() *metav1.Time {
	at := metav1.NewTime(s.now)
	return &at
}

// begin notes the start and, if the Node is there, the machine that is meant.
func begin(object *v1alpha1.GPUReset, node *corev1.Node, now time.Time) (first bool) {
	s := status{object, now}
	if first = object.Status.StartTime == nil; first {
		object.Status.StartTime, object.Status.Phase = s.time(), v1alpha1.GPUResetPending
		s.set(v1alpha1.ConditionReady, unknown, v1alpha1.ReasonPending, "the reset has not started yet")
		s.set(v1alpha1.ConditionComplete, unknown, v1alpha1.ReasonPending, "the reset has not started yet")
	}
	if object.Status.BootID != "" || node == nil || node.Status.NodeInfo.BootID == "" {
		return first
	}
	id := kube.NodeIdentity(node)
	object.Status.BootID = id.BootID
	object.Status.Machine = &v1alpha1.Machine{UID: id.UID, ProviderID: id.ProviderID, SystemUUID: id.SystemUUID}
	return first
}

// noted notes the services as they are, right before they are taken off the node.
func noted(object *v1alpha1.GPUReset, services []reset.Service, now time.Time) {
	s := status{object, now}
	object.Status.TeardownTime, object.Status.Phase, object.Status.Services = s.time(), v1alpha1.GPUResetInProgress, nil
	for _, is := range services {
		was := v1alpha1.Service{Label: is.Label, Running: is.Pods > 0}
		if is.Present {
			was.Value = &is.Value
		}
		object.Status.Services = append(object.Status.Services, was)
	}
	s.set(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReadyForReset, "the node is claimed")
	s.set(v1alpha1.ConditionServicesTornDown, unknown, v1alpha1.ReasonTearingDownServices, "the labels of the GPU services are being changed")
	s.set(v1alpha1.ConditionComplete, unknown, v1alpha1.ReasonResettingGPU, "the reset is in progress")
}

// jobNoted notes that the Job is about to be created.
func jobNoted(object *v1alpha1.GPUReset, namespace string, now time.Time) {
	s := status{object, now}
	object.Status.JobTime = s.time()
	object.Status.JobRef = &v1alpha1.JobReference{Namespace: namespace, Name: object.JobName()}
	s.set(v1alpha1.ConditionServicesTornDown, yes, v1alpha1.ReasonServiceTeardownSucceeded, "no pod of the GPU services is left on the node")
	s.set(v1alpha1.ConditionResetJobCreated, unknown, v1alpha1.ReasonCreatingResetJob, "the Job is being created")
}

// recordJob notes that the Job exists.
func recordJob(object *v1alpha1.GPUReset, uid string, now time.Time) {
	if object.Status.JobRef.UID != "" {
		return
	}
	s := status{object, now}
	object.Status.JobRef.UID = uid
	s.set(v1alpha1.ConditionResetJobCreated, yes, v1alpha1.ReasonResetJobCreationSucceeded, "job "+object.JobName())
	s.set(v1alpha1.ConditionResetJobCompleted, unknown, v1alpha1.ReasonResetJobRunning, "job "+object.JobName())
}

// concluded notes how the reset ends once the services are back. One that has never
// touched the GPUs shows that, and uses up no attempt; but services that do not go are a
// failed attempt, so that something stronger can follow.
func concluded(object *v1alpha1.GPUReset, r v1alpha1.GPUResetResult, job reset.Job, now time.Time) {
	s, st := status{object, now}, &object.Status
	st.Result, st.RestoreTime = &r, s.time()
	byHand := objectFacts(object).ResetManually
	switch {
	case st.JobTime == nil && r.Succeeded && !byHand:
		s.set(v1alpha1.ConditionSignalSent, unknown, v1alpha1.ReasonNotNeeded, r.Message)
	case st.JobTime == nil && !r.Succeeded && r.Reason != v1alpha1.ReasonServiceTeardownTimeoutExceeded:
		s.set(v1alpha1.ConditionSignalSent, no, r.Reason, r.Message)
	}
	switch {
	case job == reset.JobSucceeded:
		s.set(v1alpha1.ConditionResetJobCompleted, yes, v1alpha1.ReasonResetJobSucceeded, r.Message)
	case job == reset.JobFailed:
		s.set(v1alpha1.ConditionResetJobCompleted, no, v1alpha1.ReasonResetJobFailed, r.Message)
	case r.Succeeded:
	case st.TeardownTime == nil:
		s.set(v1alpha1.ConditionReady, no, r.Reason, r.Message)
	case st.JobTime == nil:
		s.set(v1alpha1.ConditionServicesTornDown, no, r.Reason, r.Message)
	case st.JobRef.UID == "":
		s.set(v1alpha1.ConditionResetJobCreated, no, r.Reason, r.Message)
	default:
		s.set(v1alpha1.ConditionResetJobCompleted, no, r.Reason, r.Message)
	}
	if st.TeardownTime != nil {
		s.set(v1alpha1.ConditionServicesRestored, unknown, v1alpha1.ReasonRestoringServices, "the labels of the GPU services are being restored")
	}
}

// completed notes the end. Services that did not come back make a failure of a
// reset that succeeded.
func completed(object *v1alpha1.GPUReset, why repair.Reason, now time.Time) {
	s, st := status{object, now}, &object.Status
	if why == reset.RestoreTimeUp {
		*st.Result = v1alpha1.GPUResetResult{
			Reason: v1alpha1.ReasonRestoreTimeoutExceeded, Message: "the GPUs were reset, but GPU services were not Ready again in time: " + st.Result.Message,
		}
		s.set(v1alpha1.ConditionServicesRestored, no, v1alpha1.ReasonRestoreTimeoutExceeded, "the labels are restored, but not all Pods are Ready")
	} else if st.TeardownTime != nil {
		s.set(v1alpha1.ConditionServicesRestored, yes, v1alpha1.ReasonServiceRestoreSucceeded, "the labels of the GPU services are restored")
	}
	st.CompletionTime = s.time()
	if st.Result.Succeeded {
		st.Phase = v1alpha1.GPUResetSucceeded
		s.set(v1alpha1.ConditionComplete, yes, v1alpha1.ReasonGPUResetSucceeded, st.Result.Message)
		return
	}
	st.Phase = v1alpha1.GPUResetFailed
	s.set(v1alpha1.ConditionComplete, no, st.Result.Reason, st.Result.Message)
}

// terminating shows that the object was deleted before its end.
func terminating(object *v1alpha1.GPUReset, now time.Time) bool {
	s := status{object, now}
	object.Status.Phase = v1alpha1.GPUResetTerminating
	return s.set(v1alpha1.ConditionTerminating, yes, v1alpha1.ReasonFinalizerRestoringServices, "the object was deleted, the labels of the GPU services are being restored")
}

// waiting shows what an object waits for and reports whether that is news.
func waiting(object *v1alpha1.GPUReset, node *corev1.Node, v repair.Verdict, now time.Time) bool {
	s, name := status{object, now}, object.Spec.NodeName
	if !object.DeletionTimestamp.IsZero() {
		return terminating(object, now)
	}
	// What is waited for shows at the stage that waits.
	at := v1alpha1.ConditionReady
	if object.Status.TeardownTime != nil {
		at = v1alpha1.ConditionComplete
	}
	switch v.Reason { //nolint:exhaustive // the others need no words
	case repair.Busy:
		return s.set(at, unknown, v1alpha1.ReasonResourceContention, "node "+name+" is claimed by the maintenance object with uid "+reconciler.NodeFacts(node).Claim)
	case reset.LeftDown:
		return s.set(at, unknown, v1alpha1.ReasonResourceContention, "the GPUReset with uid "+downOf(node)+", which no longer exists, has left the GPU services of node "+name+
			" stopped: restore their labels and remove the annotation "+nodemark.ResetAnnotation)
	case repair.SessionUnknown:
		return s.set(at, unknown, v1alpha1.ReasonSessionUnknown,
			"no action is taken: the store does not show the state of all faults in the quarantine session of node "+name+", see its annotation "+nodemark.UnknownAnnotation)
	case repair.MarksLifted:
		return s.set(at, unknown, v1alpha1.ReasonMarksLifted,
			"no action is taken: another client removed the cordon or a taint of the quarantine session of node "+name+", and fault-quarantine has not restored it yet")
	case repair.Manual:
		return s.set(v1alpha1.ConditionManualMode, yes, v1alpha1.ReasonOutsideActorRequired,
			"reset "+named(object)+" of node "+name+", then set the condition ResetJobCompleted to True")
	case repair.NodeAbsent, repair.BootUnknown, repair.MachineUnknown, repair.NotReady:
		return s.set(at, unknown, v1alpha1.ReasonPending, "waiting for node "+name+": "+string(v.Reason))
	case reset.PodsLeft:
		return s.set(v1alpha1.ConditionServicesTornDown, unknown, v1alpha1.ReasonTearingDownServices, "waiting for the Pods of the GPU services to terminate")
	case reset.PodsMissing:
		return s.set(v1alpha1.ConditionServicesRestored, unknown, v1alpha1.ReasonRestoringServices, "waiting for the pods of the GPU services to be Ready")
	}
	return false
}

// named are the GPUs for people.
func named(object *v1alpha1.GPUReset) string {
	if gpus := object.GPUs(); len(gpus) > 0 {
		return strings.Join(gpus, ", ")
	}
	return "all GPUs"
}

// resultOf translates the verdict that decides how a reset ends.
func resultOf(why repair.Reason, object *v1alpha1.GPUReset, job *batchv1.Job) v1alpha1.GPUResetResult {
	node := object.Spec.NodeName
	good := func(message string) v1alpha1.GPUResetResult {
		return v1alpha1.GPUResetResult{Succeeded: true, Reason: v1alpha1.ReasonGPUResetSucceeded, Message: message}
	}
	switch why { //nolint:exhaustive // the others are below
	case reset.JobEnded:
		return good("job " + object.JobName() + " has reset " + named(object) + " of node " + node)
	case repair.BootChanged:
		return good("node " + node + " was rebooted, which resets its GPUs")
	case reset.ResetManually:
		return good("a user has reset " + named(object) + " of node " + node)
	}
	reason, message := failureOf(why, object, job)
	return v1alpha1.GPUResetResult{Reason: reason, Message: message}
}

// failureOf returns why a reset fails.
func failureOf(why repair.Reason, object *v1alpha1.GPUReset, job *batchv1.Job) (reason, message string) {
	node, name := object.Spec.NodeName, object.JobName()
	switch why { //nolint:exhaustive // only these end a reset
	case repair.NodeAbsent:
		return v1alpha1.ReasonNodeNotFound, "node " + node + " does not exist"
	case repair.Busy:
		return v1alpha1.ReasonResourceContention, "another maintenance object claims node " + node + " while its GPU services are down"
	case reset.TeardownTimeUp:
		return v1alpha1.ReasonServiceTeardownTimeoutExceeded, "pods of the GPU services were still on node " + node + " at the timeout"
	case reset.NameTaken:
		return v1alpha1.ReasonResetJobCreationFailed, "job " + name + " exists and belongs to another object, rename or delete it"
	case reset.JobLost:
		return v1alpha1.ReasonResetJobNotFound, "job " + name + " does not exist, and it is unknown whether it has run"
	case reset.JobTimeUp:
		return v1alpha1.ReasonResetJobFailed, "job " + name + " did not complete in time"
	case reset.JobFailure:
		message := "job " + name + " failed"
		if c := ended(job, batchv1.JobFailed); c != nil {
			message += ": " + c.Reason + ": " + c.Message
		}
		return v1alpha1.ReasonResetJobFailed, message
	}
	return reconciler.Ended(why, node)
}
