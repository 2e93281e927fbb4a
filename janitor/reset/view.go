// Package reset decides what happens next to a GPUReset: from the object, the Node,
// the GPU services and the Job as the API server shows them now, and the time. It
// has no effects.
//
// A reset takes the GPU services off the node by its labels, runs one Job, and gives
// the labels back. What is about to be done is written down before it is done, so
// that after a crash at any point the object and the Node show where to go on:
//
//	no TeardownAt              nothing happened
//	TeardownAt, no mark        the labels are as they were: note them and go on
//	mark on the Node           the labels are down; the object knows what they were
//	JobAt, no Job              perhaps created: the Job's name is the object's, so
//	                           that there is never a second one
//	Concluded, mark            the labels have to be given back
//	Concluded, no mark         they were
//
// The mark is put on the Node in the same write as the labels are changed, and taken
// off in the one that gives them back.
package reset

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// View is everything a decision depends on.
type View struct {
	Object Object
	Node   Node
	Job    Job
}

// Object is a GPUReset.
type Object struct {
	UID string
	// Session the object belongs to; empty for a person's.
	Session string
	// Deleting, Finalizer: the object waits for labels to be restored and its claim to be released.
	Deleting, Finalizer bool
	// Completed: the outcome is final, since CompletedAt.
	Completed   bool
	CompletedAt time.Time
	// Started is when the object was first seen; zero before.
	Started time.Time
	// Machine, with its boot, whose GPUs are reset; its BootID is empty before it is
	// written.
	Machine record.NodeIdentity
	// Noted are the services as they were, TeardownAt when that was written.
	Noted      []Service
	TeardownAt time.Time
	// JobAt is when the Job was about to be created, JobUID its uid once it was seen.
	JobAt  time.Time
	JobUID string
	// ResetManually: in manual mode somebody reported that the GPUs are reset.
	ResetManually bool
	// Concluded: how the reset ends is decided, at RestoreAt. Good: it ends well.
	Concluded, Good bool
	RestoreAt       time.Time
}

// Service is one GPU service of a node.
type Service struct {
	// Label of the Node, its value and whether it is there at all.
	Label, Value string
	Present      bool
	// Pods of the service on the node that have not ended, and how many of them stay
	// and are Ready.
	Pods, Ready int
	// Running, of a noted service: it had pods.
	Running bool
}

// Node is the Node object, read from the API server itself.
type Node struct {
	repair.Node
	// Down is the uid of the GPUReset that took the services off the node.
	Down string
	// Services as they are now, in the order of the policy.
	Services []Service
}

// Job is the Job of the reset.
type Job int

// What is known of the Job. It was looked for by its name if one was noted.
const (
	// JobAbsent is certain.
	JobAbsent Job = iota
	// JobForeign: it has the name and is not this object's.
	JobForeign
	JobRunning
	JobSucceeded
	JobFailed
)

// Policy is what an operator sets.
type Policy struct {
	repair.Policy
	// TeardownTimeout is how long the services' pods may take to go, RestoreTimeout
	// to be Ready again, JobTimeout the Job to end.
	TeardownTimeout, RestoreTimeout, JobTimeout time.Duration
}

// Steps of a reset, besides those of all kinds.
const (
	// Note writes down the services as they are, before their labels are changed.
	Note repair.Step = "Note"
	// TearDown sets the services' labels to "false", while the Node is as in the view, and
	// marks the Node.
	TearDown repair.Step = "TearDown"
	// NoteJob writes down that the Job is about to be created, CreateJob creates it,
	// SeeJob writes down that it exists.
	NoteJob   repair.Step = "NoteJob"
	CreateJob repair.Step = "CreateJob"
	SeeJob    repair.Step = "SeeJob"
	// Conclude writes down how the reset ends.
	Conclude repair.Step = "Conclude"
	// Restore gives the labels back and takes the mark off.
	Restore repair.Step = "Restore"
	// Complete writes the outcome.
	Complete repair.Step = "Complete"
)

// Reasons, besides those of all kinds.
const (
	// NotTornDown: the GPU services are on the node and nothing prevents the reset, so the janitor notes them and
	// sets their labels to `false`. Action: none.
	NotTornDown repair.Reason = "NotTornDown"
	// ServicesChanged: the labels of the GPU services changed after they were noted, so the janitor notes them again.
	// Action: none.
	ServicesChanged repair.Reason = "ServicesChanged"
	// LeftDown: an earlier GPUReset that no longer exists left the GPU services off. The reset waits, and its
	// condition shows ResourceContention. Action: restore the labels of the services and remove the annotation
	// `dgxc.nvidia.com/nvsentinel-reset` from the Node.
	LeftDown repair.Reason = "ServicesLeftOff"
	// PodsLeft: pods of the GPU services are still on the node. The janitor waits, and the condition shows
	// TearingDownServices. Action: none.
	PodsLeft repair.Reason = "PodsRemaining"
	// TeardownTimeUp: pods of the GPU services are still on the node after `teardownTimeout`, so the reset fails as
	// ServiceTeardownTimeoutExceeded. Action: remove the pods that remain or increase `teardownTimeout`, then create
	// a new GPUReset.
	TeardownTimeUp repair.Reason = "TeardownTimedOut"
	// NodeFree: no pod of the GPU services is left, so the janitor prepares the Job. Action: none.
	NodeFree repair.Reason = "ServicesStopped"
	// JobNotCreated: the Job does not exist and can be created. Action: none.
	JobNotCreated repair.Reason = "JobNotCreated"
	// JobCreated: the Job exists, so the janitor writes its UID into the status. Action: none.
	JobCreated repair.Reason = "JobCreated"
	// NameTaken: a Job of another owner has the name of this reset, so the reset fails as ResetJobCreationFailed.
	// Action: rename or delete that Job, then create a new GPUReset.
	NameTaken repair.Reason = "NameTaken"
	// JobLost: the Job is gone before its end was recorded, so the reset fails as ResetJobNotFound. Action: check the
	// GPUs with `nvidia-smi` and create a new GPUReset if needed. Do not delete such Jobs.
	JobLost repair.Reason = "JobLost"
	// JobRuns: the Job runs, or its pod can still start. The janitor waits for its end. Action: none.
	JobRuns repair.Reason = "JobRunning"
	// JobEnded: the Job succeeded, so the GPUs are reset. The janitor restores the GPU services. Action: none.
	JobEnded repair.Reason = "JobSucceeded"
	// JobFailure: the Job failed, so the reset fails as ResetJobFailed. Action: read the log of the Job
	// `<name>-reset-job`, end the processes that use the GPU, then create a new GPUReset or reboot the node.
	JobFailure repair.Reason = "JobFailed"
	// JobTimeUp: the Job did not end in time, so the reset fails as ResetJobFailed. Action: read the log of the Job
	// `<name>-reset-job`, or increase `timeout` of `resetJob`, then create a new GPUReset.
	JobTimeUp repair.Reason = "JobTimedOut"
	// ResetManually: in manual mode the condition ResetJobCompleted was set to True, so the GPUs count as reset. Action:
	// none.
	ResetManually repair.Reason = "ResetManually"
	// StillDown: the result of the reset is known and the GPU services are still off, so the janitor restores their
	// labels. Action: none.
	StillDown repair.Reason = "ServicesStillOff"
	// PodsMissing: a GPU service that ran before the reset has no Ready pod yet. The janitor waits, and the condition
	// shows RestoringServices. Action: none.
	PodsMissing repair.Reason = "PodsNotReady"
	// RestoreTimeUp: a GPU service is not Ready after `restoreTimeout`, so the reset fails as RestoreTimeoutExceeded.
	// Action: check the pods of the GPU operator on the node.
	RestoreTimeUp repair.Reason = "RestoreTimedOut"
	// Restored: the labels and the GPU services are as before, so the janitor writes the outcome. Action: none.
	Restored repair.Reason = "Restored"
)
