// Package repair decides what happens next to a repair object, a RebootNode or a
// TerminateNode: from the object, the Node as the API server shows it now, what
// the provider reports, and the time. It has no effects.
//
// What makes a second signal impossible or harmless is written down before the
// first one: the idempotency key, the boot id, the machine it is meant for
// (Begin), the claim on the Node, which is one for all kinds (Claim), and the
// moment from which the machine may have been signaled (Send writes it right before
// the call). So after a crash at any point the object and the Node show where to
// go on:
//
//	no key                     nothing happened
//	key, no SignalAt           nothing was sent, whatever claims the Node
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
	// Unnamed: it does not name the Node it is for.
	Unnamed bool
	// Abandoned: its owner waits for it no longer.
	Abandoned bool
	// Session the object belongs to; empty for a person's object, which is not
	// bound to any.
	Session string
	// Deleting, Finalizer: the object waits for the claim to be dropped.
	Deleting, Finalizer bool
	// Completed: the outcome is final, since CompletedAt.
	Completed   bool
	CompletedAt time.Time
	// RemovedByOther: somebody else removes the object.
	RemovedByOther bool
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
	// Acknowledged: the plugin (in manual mode: a person) confirmed that the signal was sent.
	Acknowledged bool
}

// Node is the Node object, read from the API server itself.
type Node struct {
	// Exists is false only if the API server is certain.
	Exists bool
	// Identity of the machine, with its boot id; empty means not reported.
	Identity record.NodeIdentity
	Ready    bool
	// Session on the Node; Schedulable is that of nodemark.Marks.
	Session     string
	Schedulable bool
	// Missing: a mark of the session was lifted, which is no release, and is not yet
	// restored.
	Missing bool
	// Excluded: the operator keeps us off the node, by its label or by the
	// configuration.
	Excluded bool
	// Unknown: the store does not know all faults of the Node's session.
	Unknown bool
	// Claim is the uid of the repair object that claims the Node.
	Claim string
}

// Plugin is what the provider reports about the node.
type Plugin int

// Answers to IsNodeReady.
const (
	NotQueried Plugin = iota
	ReportsReady
	// ReportsNotReady: the provider reports that the node is not ready, or did not answer.
	ReportsNotReady
	// ReportsDeleted: the provider certainly has no such machine.
	ReportsDeleted
	// ReportsNothing: the provider has no opinion.
	ReportsNothing
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
	// QueryPlugin asks IsNodeReady and decides again.
	QueryPlugin Step = "AskPlugin"
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
	// NotStarted: the object is new, so the janitor adds its finalizer and writes the start time. Action: none.
	NotStarted Reason = "NotStarted"
	// NoIntent: the Node is present, so the janitor writes key, boot ID and machine into the status before anything
	// else. Action: none.
	NoIntent Reason = "NoIntent"
	// NodeAbsent: the Node object does not exist. The janitor waits until it appears or the time of the object is
	// over. Action: none if you removed the machine. Otherwise start it so that its kubelet registers the Node again.
	NodeAbsent Reason = "NodeNotFound"
	// NodeGone: the Node object was absent until the time of the object was over, so the object ends. Action: none if
	// you removed the machine. Otherwise start it so that its kubelet registers the Node again.
	NodeGone Reason = "NodeGone"
	// BootUnknown: the Node reports no boot ID, so a reboot could not be proven. The janitor waits and sends nothing.
	// Action: none if it ends by itself. Otherwise check the kubelet of the node.
	BootUnknown Reason = "BootUnknown"
	// MachineUnknown: the identity of the Node cannot be compared with that of the object, so the janitor waits and
	// sends nothing. Action: none if it ends by itself. Otherwise check `spec.providerID` and
	// `status.nodeInfo.systemUUID` of the Node.
	MachineUnknown Reason = "MachineUnknown"
	// AnotherMachine: another machine has the name of the node, so the object ends and no further request is sent.
	// Action: none, or create a new object if the present machine needs the repair.
	AnotherMachine Reason = "AnotherMachine"
	// Busy: another maintenance object claims the Node, so the janitor waits. Action: none, or delete the other
	// object if it is not needed.
	Busy Reason = "Busy"
	// NotClaimed: no maintenance object claims the Node, so the janitor writes the claim of this object. Action:
	// none.
	NotClaimed Reason = "NotClaimed"
	// NoSession: the quarantine session of the Node is over, so an object that has sent nothing ends as SessionOver.
	// Action: none.
	NoSession Reason = "NoSession"
	// OtherSession: the Node is in another quarantine session than the object, so an object that has sent nothing
	// ends as SessionOver. Action: none.
	OtherSession Reason = "OtherSession"
	// NodeSchedulable: the Node is schedulable again, so an object that has sent nothing ends as SessionOver. Action:
	// none.
	NodeSchedulable Reason = "NodeSchedulable"
	// NodeExcluded: the node is opted out by its label (`nvsentinel.dgxc.nvidia.com/managed=false`) or excluded in
	// the configuration of the janitor, so no request is sent. Action: none if that is intended. Otherwise remove the
	// label or the entry in `exclusions`.
	NodeExcluded Reason = "NodeExcluded"
	// SessionUnknown: the store does not contain all faults of the quarantine session, so the janitor waits and sends
	// nothing. Action: if the records do not return within minutes, inspect the node and run
	// `nvsentinel release <node>`. See the page Back up and restore.
	SessionUnknown Reason = "SessionUnknown"
	// MarksLifted: the cordon or a taint of the session was removed without a release. The janitor waits until
	// fault-quarantine restores it. Action: none if it happens once. If it repeats, stop the program that the Event
	// MarksRestored names.
	MarksLifted Reason = "MarksLifted"
	// Claimed: the object claims the Node and nothing prevents the request, so the janitor sends it. Action: none.
	Claimed Reason = "Claimed"
	// Manual: manual mode (`manualMode`) is on, so the janitor sends no request. Action: do what the message of the
	// condition ManualMode asks for, then set the condition that it names to True.
	Manual Reason = "Manual"
	// BootUnchanged: the plugin accepted the reboot, and the Node still reports the earlier boot ID. The janitor
	// waits. Action: none at first. If it lasts, check the machine and its console. The object fails after
	// `global.timeout` (25m).
	BootUnchanged Reason = "BootUnchanged"
	// Unanswered: a request may have been sent and its answer is not known. The janitor waits for an effect, then
	// sends the request again with the same key. Action: none at first. If it lasts, check the plugin.
	Unanswered Reason = "Unanswered"
	// Throttled: the plugin asked for a pause (`status.notBefore`), so the janitor sends nothing until it is over.
	// Action: none. If it lasts, check the rate limits of the provider.
	Throttled Reason = "Throttled"
	// BootChanged: the Node reports another boot ID than before the request, which proves the reboot. A GPUReset
	// succeeds by it, and a termination is not requested again. Action: none.
	BootChanged Reason = "BootChanged"
	// NotReady: the machine has rebooted and its Node is not Ready yet. The janitor waits. Action: none at first. If
	// it lasts, check the kubelet of the node.
	NotReady Reason = "NotReady"
	// PluginNotReady: the machine has rebooted and its Node is Ready, and the plugin does not confirm that the
	// machine is up. The janitor waits. Action: none at first. If it lasts, check the plugin and its log.
	PluginNotReady Reason = "PluginNotReady"
	// TimeUp: the time of the object is over, so it fails. Action: read the last message of its condition and check
	// the plugin, the provider and the machine.
	TimeUp Reason = "TimedOut"
	// Ended: the outcome of the object is final. The janitor drops the claim, and removes the object after
	// `global.ttl`. Action: none.
	Ended Reason = "Ended"
	// Deleted: the object was deleted before its end. The janitor drops the claim and the finalizer. Action: none. A
	// request that was sent is not taken back.
	Deleted Reason = "Deleted"
	// NodeUnnamed: the object names no Node, so it ends without a request. Action: create the object with
	// `spec.nodeName`.
	NodeUnnamed Reason = "NodeNameMissing"
	// GivenUp: the NodeHealthCheck that owns the object no longer waits for it, so the object ends. Action: none. The
	// next remediation of the NodeHealthCheck follows.
	GivenUp Reason = "GivenUp"
	// Signaled: a termination may have been sent, so the janitor asks the plugin whether the machine is gone. Action:
	// none.
	Signaled Reason = "Signaled"
	// MachineThere: a termination was sent, and the provider still has the machine or reports nothing about it. The
	// janitor waits. Action: none at first. If it lasts, check the machine at the provider.
	MachineThere Reason = "MachineExists"
	// MachineGone: the provider reports that the machine is gone. The janitor removes the Node object and the object
	// succeeds. Action: none.
	MachineGone Reason = "MachineGone"
	// Replaced: the plugin accepted the termination, and another machine has the name of the node, so the object
	// succeeds. Action: none.
	Replaced Reason = "Replaced"
)

// Verdict is one decision.
type Verdict struct {
	Step   Step
	Reason Reason
	// Again is when to look again at the latest; only for Wait.
	Again time.Duration
}
