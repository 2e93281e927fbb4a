// Package reset decides what happens next to a GPUReset: from the object, the Node,
// the GPU services and the Job as the API server shows them now, and the time. It
// has no effects.
//
// A reset takes the GPU services off the node by its labels, runs one Job, and gives
// the labels back. What is about to be done is written down before it is done, so
// that after a crash at any point the object and the Node say where to go on:
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
	// Deleting, Finalizer: the object waits for labels and claim to be given back.
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
	// ByHand: in manual mode somebody said that the GPUs are reset.
	ByHand bool
	// Concluded: how the reset ends is decided; Good says well. RestoreAt is when.
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
	// TearDown says "false" in the services' labels, while the Node is as in the
	// view, and marks the Node.
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
	// NotTornDown: the services are on the node.
	NotTornDown repair.Reason = "NotTornDown"
	// ServicesChanged: they are not as they were noted.
	ServicesChanged repair.Reason = "ServicesChanged"
	// LeftDown: another GPUReset, which is gone, has left them down.
	LeftDown repair.Reason = "LeftDown"
	// PodsLeft: their pods have not gone.
	PodsLeft repair.Reason = "PodsLeft"
	// TeardownTimeUp: and the time is up.
	TeardownTimeUp repair.Reason = "TeardownTimeUp"
	// NodeFree: no pod of theirs is left.
	NodeFree repair.Reason = "NodeFree"
	// JobUnseen: the Job is not there, and may be created.
	JobUnseen repair.Reason = "JobUnseen"
	// JobSeen: it is there.
	JobSeen repair.Reason = "JobSeen"
	// NameTaken: a Job that is not this object's has its name.
	NameTaken repair.Reason = "NameTaken"
	// JobLost: it was there, or may have been, and is not.
	JobLost    repair.Reason = "JobLost"
	JobRuns    repair.Reason = "JobRuns"
	JobEnded   repair.Reason = "JobEnded"
	JobFailure repair.Reason = "JobFailure"
	JobTimeUp  repair.Reason = "JobTimeUp"
	// ByHand: somebody else did it.
	ByHand repair.Reason = "ByHand"
	// StillDown: the labels have to be given back.
	StillDown repair.Reason = "StillDown"
	// PodsMissing: a service that ran before has no Ready pod yet.
	PodsMissing repair.Reason = "PodsMissing"
	// RestoreTimeUp: and the time is up.
	RestoreTimeUp repair.Reason = "RestoreTimeUp"
	// Restored: labels and services are as they were.
	Restored repair.Reason = "Restored"
)
