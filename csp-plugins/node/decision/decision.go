// Package decision decides what follows from a request to reboot a node: from its Job, the
// Job's Pod, the Node and the time. It has no effects.
//
// One Job exists per idempotency key, and its name follows from the key. A Job that the
// kubelet has not started in time is deleted, because a Job that starts late would reboot a
// machine that was repaired otherwise.
package decision

import "time"

// View is everything that a decision depends on.
type View struct {
	// Node is the name of the Node in the request.
	Node string
	Job  Job
	Pod  Pod
	Live Node
}

// JobState is the state of the Job of a key.
type JobState string

// States of a Job.
const (
	// JobAbsent: the API server has no Job of this name.
	JobAbsent JobState = "Absent"
	// JobForeign: a Job of this name exists, and another client created it or for another key.
	JobForeign JobState = "Foreign"
	// JobDeleting: the Job is being deleted.
	JobDeleting JobState = "Deleting"
	// JobActive: the Job has not ended.
	JobActive JobState = "Active"
	// JobEnded: the Job has succeeded or failed.
	JobEnded JobState = "Ended"
)

// Job is the Job of a key.
type Job struct {
	State JobState
	// Node and BootID are those of the request that created it.
	Node, BootID string
	// StartBy is the time until which the program may start.
	StartBy time.Time
}

// PodState is the state of the Pod of a Job.
type PodState string

// States of a Pod.
const (
	// PodAbsent: the Job has no Pod, or not yet.
	PodAbsent PodState = "Absent"
	// PodWaiting: the kubelet has not started its container.
	PodWaiting PodState = "Waiting"
	// PodRejected: the kubelet has refused it, for example because its disk is full.
	PodRejected PodState = "Rejected"
	// PodStarted: its container runs, or has ended without a result of the program.
	PodStarted PodState = "Started"
	// PodRequested: the program has requested the reboot and ended.
	PodRequested PodState = "Requested"
	// PodOtherBoot: the program found another boot ID and did nothing.
	PodOtherBoot PodState = "OtherBoot"
	// PodLate: the program started after the time that it was allowed and did nothing.
	PodLate PodState = "Late"
	// PodFailed: the program could not reboot the machine.
	PodFailed PodState = "Failed"
)

// Pod is the Pod of a Job.
type Pod struct{ State PodState }

// Node is the Node as the API server shows it now.
type Node struct {
	Exists bool
	// BootID is empty if the kubelet has not reported it.
	BootID string
}

// Policy is what an operator sets.
type Policy struct {
	// Grace is the time between StartBy and the deletion of the Job. Within it, the kubelet
	// reports a program that started in time.
	Grace time.Duration
	// Poll is the longest time until the next decision.
	Poll time.Duration
}

// Step is what to do now.
type Step string

// Steps.
const (
	// Create creates the Job.
	Create Step = "Create"
	// Wait decides again after Verdict.Again.
	Wait Step = "Wait"
	// Accept answers that the request was accepted.
	Accept Step = "Accept"
	// Delete deletes the Job of the view, and no other, and then reports or refuses.
	Delete Step = "Delete"
	// Report answers that the node does not respond.
	Report Step = "Report"
	// Refuse answers that nothing was done and a retry cannot help.
	Refuse Step = "Refuse"
	// Retry answers that nothing was done yet.
	Retry Step = "Retry"
)

// Reason is why.
type Reason string

// Reasons.
const (
	// NotRequested: no Job exists for the key of the request, so the plugin creates it. Action: none.
	NotRequested Reason = "RebootNotRequested"
	// NodeNotFound: the Node does not exist, so the plugin creates no Job. Action: none if you removed the machine.
	// Otherwise start it so that its kubelet registers the Node again.
	NodeNotFound Reason = "RebootNodeNotFound"
	// BootIDUnknown: the Node reports no boot ID, so a reboot could not be verified. The janitor retries. Action:
	// none if it ends by itself. Otherwise check the kubelet of the node.
	BootIDUnknown Reason = "RebootBootIDUnknown"
	// NameTaken: a Job of another client has the name of the Job for this key, so the plugin refuses the request.
	// Action: delete the Job that the message names.
	NameTaken Reason = "RebootJobNameTaken"
	// KeyOfAnotherNode: the key was used for another node, so the plugin refuses the request. Action: none. If it
	// repeats, report it.
	KeyOfAnotherNode Reason = "RebootKeyOfAnotherNode"
	// JobRemoved: the Job is being deleted, so the janitor asks again. Action: none.
	JobRemoved Reason = "RebootJobDeleted"
	// NotStarted: the kubelet has not started the Pod of the Job, so the plugin waits. Action: none.
	NotStarted Reason = "RebootJobNotStarted"
	// StartTimeUp: the kubelet did not start the Pod within `startTimeout` (2m). The plugin deletes the Job, and the
	// object ends as `NodeUnresponsive`. Action: none. The next action follows. Check the kubelet of the node.
	StartTimeUp Reason = "RebootStartTimeUp"
	// PodNotCreated: the Job has no Pod when `startTimeout` (2m) is over, so the node is not the cause. The plugin
	// deletes the Job and refuses the request, and the attempt does not count. Action: read the Events of Jobs in the
	// namespace of the suite. It must admit privileged Pods.
	PodNotCreated Reason = "RebootPodNotCreated"
	// Rejected: the kubelet refused the Pod, for example because the disk of the node is full. The object ends as
	// `NodeUnresponsive`. Action: none. The next action follows. The message contains the report of the kubelet.
	Rejected Reason = "RebootPodRejected"
	// StartedLate: the program started after the time that it was allowed by the clock of the node, and did nothing.
	// The plugin refuses the request, and the attempt does not count. Action: check the clocks of the node and of the
	// node of the plugin.
	StartedLate Reason = "RebootStartedLate"
	// Started: the program runs, so the reboot is under way. Action: none.
	Started Reason = "RebootStarted"
	// Requested: the program has requested the reboot. Action: none.
	Requested Reason = "RebootRequested"
	// Rebooted: the machine has another boot ID than at the time of the request, so nothing more is done. Action:
	// none.
	Rebooted Reason = "RebootDone"
	// JobOver: the Job has ended and its Pod is gone, so the reboot may have happened. The boot ID decides. Action:
	// none.
	JobOver Reason = "RebootJobOver"
	// ProgramFailed: the program could not reboot the machine, by systemd and by sysrq. The object ends. Action: read
	// the log of the Job that the message names.
	ProgramFailed Reason = "RebootProgramFailed"
)

// Verdict is one decision.
type Verdict struct {
	Step   Step
	Reason Reason
	// Again is the time until the next decision, only for Wait.
	Again time.Duration
}

// Next decides what to do with a request.
func Next(v View, p Policy, now time.Time) Verdict {
	switch {
	case v.Job.State == JobForeign:
		return Verdict{Step: Refuse, Reason: NameTaken}
	case v.Job.State == JobAbsent && !v.Live.Exists:
		return Verdict{Step: Refuse, Reason: NodeNotFound}
	case v.Job.State == JobAbsent && v.Live.BootID == "":
		return Verdict{Step: Retry, Reason: BootIDUnknown}
	case v.Job.State == JobAbsent:
		return Verdict{Step: Create, Reason: NotRequested}
	case v.Job.Node != v.Node:
		return Verdict{Step: Refuse, Reason: KeyOfAnotherNode}
	case v.Live.BootID != "" && v.Live.BootID != v.Job.BootID:
		return Verdict{Step: Accept, Reason: Rebooted}
	}
	return progress(v, p, now)
}

// progress decides about a Job of this request whose machine shows the earlier boot.
func progress(v View, p Policy, now time.Time) Verdict {
	switch v.Pod.State {
	case PodStarted:
		return Verdict{Step: Accept, Reason: Started}
	case PodRequested:
		return Verdict{Step: Accept, Reason: Requested}
	case PodOtherBoot:
		return Verdict{Step: Accept, Reason: Rebooted}
	case PodLate:
		return Verdict{Step: Refuse, Reason: StartedLate}
	case PodRejected:
		return Verdict{Step: Report, Reason: Rejected}
	case PodFailed:
		return Verdict{Step: Refuse, Reason: ProgramFailed}
	case PodAbsent, PodWaiting:
	}
	switch v.Job.State {
	case JobDeleting:
		return Verdict{Step: Wait, Reason: JobRemoved, Again: p.Poll}
	case JobEnded:
		return Verdict{Step: Accept, Reason: JobOver}
	case JobAbsent, JobForeign, JobActive:
	}
	rest := v.Job.StartBy.Add(p.Grace).Sub(now)
	switch {
	case rest <= 0 && v.Pod.State == PodAbsent:
		return Verdict{Step: Delete, Reason: PodNotCreated}
	case rest <= 0:
		return Verdict{Step: Delete, Reason: StartTimeUp}
	}
	return Verdict{Step: Wait, Reason: NotStarted, Again: min(rest, p.Poll)}
}
