// Package repair decides what happens next to a repair object, a RebootNode or a
// TerminateNode: from the object, the Node as the API server shows it now, what
// the provider says, and the time. It has no effects.
//
// What makes a second signal impossible or harmless is written down before the
// first one: the idempotency key, the boot id, the machine it is meant for
// (Begin), the claim on the Node, which is one for all kinds (Claim), and the
// moment from which the machine may have been told (Send writes it right before
// the call). So after a crash at any point the object and the Node say where to
// go on:
//
//	no key                     nothing happened
//	key, no SignalAt           nothing was sent, whoever claims the Node
//	SignalAt, no answer        perhaps sent: the boot id decides, or whether the
//	                           provider still has the machine; no effect after
//	                           ResendAfter = the same key again
//	answer                     sent: wait for the effect
package repair

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// View is everything a decision depends on.
type View struct {
	Object Object
	Node   Node
	Plugin Plugin
}

// Object is a repair object.
type Object struct {
	UID string
	// Unnamed: it does not say which Node it is for.
	Unnamed bool
	// GivenUp: its owner waits for it no longer.
	GivenUp bool
	// Session the object belongs to; empty for a person's object, which is not
	// bound to any.
	Session string
	// Deleting, Finalizer: the object waits for the claim to be dropped.
	Deleting, Finalizer bool
	// Completed: the outcome is final, since CompletedAt.
	Completed   bool
	CompletedAt time.Time
	// Kept: somebody else removes the object.
	Kept bool
	// Started is when the object was first seen; zero before.
	Started time.Time
	// Key, PreBoot, Machine are the intent; Key is empty before it is written.
	Key     string
	PreBoot string
	Machine record.NodeIdentity
	// SignalAt is when the first signal was about to be sent, LastAt the moment
	// before which the last one left, Signals how many may have been.
	SignalAt, LastAt time.Time
	Signals          int
	// NotBefore is until when the plugin asked to be left alone; zero if it did
	// not.
	NotBefore time.Time
	// Acknowledged: the plugin (in manual mode: somebody) said that it was sent.
	Acknowledged bool
}

// Node is the Node object, read from the API server itself.
type Node struct {
	// Exists is false only if the API server is certain.
	Exists bool
	// Identity of the machine, with its boot id; empty means not reported.
	Identity record.NodeIdentity
	Ready    bool
	// Session on the Node; Schedulable as nodemark.Marks says.
	Session     string
	Schedulable bool
	// Missing: a mark of the session was lifted, which is no release, and is not yet
	// restored.
	Missing bool
	// Excluded: the operator keeps us off the node, by its label or by the
	// configuration.
	Excluded bool
	// Unknown: the store cannot tell of all faults of the Node's session.
	Unknown bool
	// Claim is the uid of the repair object that claims the Node.
	Claim string
}

// Plugin is what the provider says about the node.
type Plugin int

// Answers to IsNodeReady.
const (
	NotAsked Plugin = iota
	SaysReady
	// SaysNotReady: it says so, or it did not answer.
	SaysNotReady
	// SaysGone: the provider certainly has no such machine.
	SaysGone
	// SaysNothing: the provider has no opinion.
	SaysNothing
)

// Policy is what an operator sets.
type Policy struct {
	// Timeout from the first signal (before it: from the start) to the end.
	Timeout time.Duration
	// ResendAfter is how long a signal without an answer gets to show itself.
	ResendAfter time.Duration
	// Poll is how often the node is looked at when nothing enqueues it.
	Poll time.Duration
	// Manual leaves the signal to somebody else.
	Manual bool
	// TTL is how long an object is kept after its end; 0 keeps it.
	TTL time.Duration
}

// Step is what to do now.
type Step string

// Steps.
const (
	// Begin writes the finalizer, the start and, once the Node is there, the
	// intent.
	Begin Step = "Begin"
	// Claim writes the object's uid on the Node while the Node is as in the
	// view.
	Claim Step = "Claim"
	// Send and Resend note the time and call the plugin.
	Send   Step = "Send"
	Resend Step = "Resend"
	// AskPlugin asks IsNodeReady and decides again.
	AskPlugin Step = "AskPlugin"
	// DeleteNode removes the Node object of the view, and no other.
	DeleteNode Step = "DeleteNode"
	// Wait looks again after Verdict.Again, or when the Node or object changes.
	Wait Step = "Wait"
	// Succeed, Fail and SessionOver write the outcome.
	Succeed     Step = "Succeed"
	Fail        Step = "Fail"
	SessionOver Step = "SessionOver"
	// Unclaim drops the claim and the finalizer.
	Unclaim Step = "Unclaim"
	// Expire removes an object whose end is long past.
	Expire Step = "Expire"
	// Done has nothing left to do.
	Done Step = "Done"
)

// Reason is why.
type Reason string

// Reasons.
const (
	NotStarted      Reason = "NotStarted"
	NoIntent        Reason = "NoIntent"
	NodeAbsent      Reason = "NodeAbsent"
	NodeGone        Reason = "NodeGone"
	BootUnknown     Reason = "BootUnknown"
	MachineUnknown  Reason = "MachineUnknown"
	AnotherMachine  Reason = "AnotherMachine"
	Busy            Reason = "Busy"
	NotClaimed      Reason = "NotClaimed"
	NoSession       Reason = "NoSession"
	OtherSession    Reason = "OtherSession"
	NodeSchedulable Reason = "NodeSchedulable"
	// NodeExcluded: the node is none of ours.
	NodeExcluded Reason = "NodeExcluded"
	// SessionUnknown: the store cannot tell of all faults of the Node's session.
	SessionUnknown Reason = "SessionUnknown"
	// MarksLifted: somebody lifted a mark of the session, which fault-quarantine restores.
	MarksLifted Reason = "MarksLifted"
	Claimed     Reason = "Claimed"
	Manual      Reason = "Manual"
	// BootUnchanged: the answered signal has not shown itself.
	BootUnchanged Reason = "BootUnchanged"
	// Unanswered: a signal may have been sent.
	Unanswered Reason = "Unanswered"
	// Throttled: the plugin asked to be left alone for a while.
	Throttled      Reason = "Throttled"
	BootChanged    Reason = "BootChanged"
	NotReady       Reason = "NotReady"
	PluginNotReady Reason = "PluginNotReady"
	TimeUp         Reason = "TimeUp"
	Ended          Reason = "Ended"
	Deleted        Reason = "Deleted"
	NodeUnnamed    Reason = "NodeUnnamed"
	GivenUp        Reason = "GivenUp"
	// Signaled: the machine may have been told to go.
	Signaled Reason = "Signaled"
	// MachineThere: the provider still has the machine, or does not say.
	MachineThere Reason = "MachineThere"
	// MachineGone: the provider has no such machine any more.
	MachineGone Reason = "MachineGone"
	// Replaced: another machine has the name since the signal was taken.
	Replaced Reason = "Replaced"
)

// Verdict is one decision.
type Verdict struct {
	Step   Step
	Reason Reason
	// Again is when to look again at the latest; only for Wait.
	Again time.Duration
}
