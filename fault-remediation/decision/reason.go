package decision

import "github.com/nvidia/nvsentinel/data-models/record"

// Reason is why a step was chosen.
type Reason string

// Steps that only wait, or have nothing to do.
const (
	// Nothing: no open fault of the node needs a repair.
	Nothing Reason = "Nothing"
	// NodeGone: the Node is deleted; the same machine may come back.
	NodeGone Reason = "NodeGone"
	// WaitNode: the Node could not be read.
	WaitNode Reason = "WaitNode"
	// WaitSession: the Node does not bear the session of the open records yet.
	WaitSession Reason = "WaitSession"
	// WaitUnknown: the store cannot tell of all faults of the Node's session.
	WaitUnknown Reason = "WaitUnknown"
	// WaitNewer: a record of the node is for a newer version to go on with.
	WaitNewer Reason = "NewerVersion"
	// WaitMachine: the Node is another machine than the records', or it can not
	// be told.
	WaitMachine Reason = "WaitMachine"
	// WaitMarks: the Node is schedulable; such a session is never repaired.
	WaitMarks Reason = "WaitMarks"
	// WaitDrain: an open record of the session is not drained.
	WaitDrain Reason = "WaitDrain"
	// WaitPods: pods that had to go are on the node again.
	WaitPods Reason = "WaitPods"
	// WaitClaim: another repair object claims the Node.
	WaitClaim Reason = "WaitClaim"
	// WaitLease: another remediator has the node's lease.
	WaitLease Reason = "WaitLease"
	// WaitBrake: the emergency brake is on, or was not read yet.
	WaitBrake Reason = "WaitBrake"
	// WaitSymptoms: the fault may be a symptom of a repair that just ended.
	WaitSymptoms Reason = "WaitSymptoms"
	// WaitBackoff: the pause after a failed repair.
	WaitBackoff Reason = "WaitBackoff"
	// WaitReady: the machine was told to boot and has not been Ready since; it
	// may be in mid-boot.
	WaitReady Reason = "WaitReady"
	// WaitHuman: the machine is not taken away before a person has looked.
	WaitHuman Reason = "WaitHuman"
	// WaitObject: the repair object has no verdict yet.
	WaitObject Reason = "WaitObject"
	// WaitTimedOut: the object had its time, a person knows; no other repair
	// starts while it may still act.
	WaitTimedOut Reason = "WaitTimedOut"
	// NoRepair: the fault asks for no repair, so that only its recovery ends the
	// quarantine. A person is asked when it does not come.
	NoRepair Reason = "NoRepair"
	// WaitRecovery: repaired; the recovery has not been reported yet.
	WaitRecovery Reason = "WaitRecovery"
	// ReadError: the object could not be read, which says nothing about it.
	ReadError Reason = "ReadError"
	// CreateForbidden: the API server does not let the object be created.
	CreateForbidden Reason = "CreateForbidden"
	// KindMissing: the API server does not know the object's kind.
	KindMissing Reason = "KindMissing"
	// Unconfigured: the attempt's action is not configured any more.
	Unconfigured Reason = "Unconfigured"
)

// Steps that do something.
const (
	// Stamp reserves the name of the next object in the record.
	Stamp Reason = "Stamp"
	// Create creates the reserved object.
	Create Reason = "Create"
	// RecordUID records that the object exists.
	RecordUID Reason = "RecordUID"
	// Succeed: the rule says Healthy.
	Succeed Reason = "Succeed"
	// CoveredByRepair: another record's repair explains the fault.
	CoveredByRepair Reason = "CoveredByRepair"
	// CoveredByReboot: the boot under which the fault was seen is over.
	CoveredByReboot Reason = "CoveredByReboot"
	// Fail: the rule says Unhealthy; the attempt is closed.
	Fail Reason = "Fail"
	// SessionOver: the actor found the session over and sent nothing.
	SessionOver Reason = "SessionOver"
	// Release gives a reserved name back that is not wanted any more.
	Release Reason = "Release"
	// Escalate turns to the next action, since the last has no attempt left.
	Escalate Reason = "Escalate"
	// Forgive: a person took the lemon mark off; the repairs so far count no more.
	Forgive Reason = "Forgive"
	// Cancel closes the trace of a record whose fault is over.
	Cancel Reason = "Cancel"
)

// Steps that end with a person.
const (
	// HumanAction: the action is a person's by its kind.
	HumanAction Reason = "HumanAction"
	// AttemptsUsedUp: no attempt is left in the window.
	AttemptsUsedUp Reason = "AttemptsUsedUp"
	// ChainEscalated: a step of the chain failed whose failure is not tried again.
	ChainEscalated Reason = "ChainEscalated"
	// ChainMisconfigured: the chain or one of its templates is wrong: the node is not
	// repaired, and no other repair follows from that.
	ChainMisconfigured Reason = "ChainMisconfigured"
	// ChainUnknown: what a step of the chain did to the node is unknown, because others
	// deleted or changed its object, or took its name.
	ChainUnknown Reason = "ChainUnknown"
	// SignalRefused: the actor refused as often as there are attempts.
	SignalRefused Reason = "SignalRefused"
	// NeverReady: the machine has not been Ready since its last signal; another
	// one could interrupt its boot.
	NeverReady Reason = "NeverReady"
	// ClaimStuck: another repair object has claimed the Node for too long.
	ClaimStuck Reason = "ClaimStuck"
	// StrongerFailed: a stronger repair failed, a weaker one can not help.
	StrongerFailed Reason = "StrongerFailed"
	// SlotClosed: the slot's repair ended with a person.
	SlotClosed Reason = "SlotClosed"
	// Lost: the object was deleted by somebody else.
	Lost Reason = "Lost"
	// NameTaken: an object of somebody else has the reserved name.
	NameTaken Reason = "NameTaken"
	// CreateRefused: the API server will never accept the object.
	CreateRefused Reason = "CreateRefused"
	// UnknownTimeout: the object has no verdict within its time.
	UnknownTimeout Reason = "UnknownTimeout"
	// Lemon: the machine needed too many repairs; it is kept for a person.
	Lemon Reason = record.Lemon
	// NoRecovery: repaired, but no recovery was reported.
	NoRecovery Reason = "NoRecovery"
)

// States of an attempt besides those of the health rule.
const (
	StateLost      = "Lost"
	StateCancelled = "Cancelled"
)
