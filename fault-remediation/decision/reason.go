package decision

import "github.com/nvidia/nvsentinel/data-models/record"

// Reason is why a step was chosen.
type Reason string

// Steps that only wait, or have nothing to do.
const (
	// Nothing: no fault of the node needs a further remediation, because none is open or each open one has an
	// outcome. fault-remediation does nothing. Action: none.
	Nothing Reason = "NothingToDo"
	// NodeGone: the Node object does not exist. fault-remediation waits, because the same machine can register again.
	// Action: none if you removed the machine, because fault-quarantine closes the session after 7 days. Otherwise
	// start the machine so that its kubelet registers the Node again.
	NodeGone Reason = "NodeGone"
	// WaitNode: the Node could not be read from the API server. fault-remediation reads it again after 30 seconds.
	// Action: none if it ends by itself. Otherwise check that the API server responds and that the service account
	// has `get` on Nodes.
	WaitNode Reason = "NodeUnreadable"
	// WaitSession: the Node does not show the quarantine session of the open records, not yet or no longer.
	// fault-remediation waits until fault-quarantine marks the Node or ends the session. Action: none if it ends
	// within a minute. Otherwise check fault-quarantine with `nvsentinel status` and the node with
	// `nvsentinel why <node>`.
	WaitSession Reason = "AwaitingSession"
	// WaitUnknown: the Node has the annotation `dgxc.nvidia.com/nvsentinel-session-unknown`, because the store does
	// not contain all faults of its session. Nothing is remediated until the records are back or you release the
	// node. Action: if the records do not return within minutes, inspect the node and run
	// `nvsentinel release <node>`. See the page Back up and restore.
	WaitUnknown Reason = "SessionUnknown"
	// WaitNewer: a newer version of fault-remediation wrote a record of the node, and only such a version can
	// continue it. The whole node waits, with the Event NewerVersionRequired. Action: install the newer version again. If you
	// cannot, inspect the node and run `nvsentinel release <node>`. See the page Upgrade.
	WaitNewer Reason = "NewerVersionRequired"
	// WaitMachine: the Node belongs to another machine than the record, or its identity cannot be compared. No
	// remediation starts, so that no wrong machine is rebooted or replaced. Action: run `nvsentinel why <node>`. If
	// fault-quarantine does not end the session, inspect the node and run `nvsentinel release <node>`.
	WaitMachine Reason = "MachineUnverified"
	// WaitMarks: the Node is schedulable, although its session is open, so no remediation starts. fault-quarantine
	// restores a removed cordon or taint within a minute. A session whose rule sets request neither is never
	// remediated. Action: none if it happens once. If it repeats, stop the program that the Event MarksRestored
	// names. If a rule set lacks the cordon, add it.
	WaitMarks Reason = "NodeSchedulable"
	// WaitDrain: an open record of the session is not drained yet. fault-remediation waits for node-drainer. Action:
	// none while the drain makes progress. Otherwise read the Event DrainBlocked and `nvsentinel why <node>`.
	WaitDrain Reason = "AwaitingDrain"
	// WaitPods: pods that must leave before the remediation are on the node again, so the maintenance object is not
	// created. node-drainer evicts them. Action: none if they leave. If the Event DrainBlocked appears, change the
	// disruption budget or delete the pods. Keep the `eviction` settings of fault-remediation equal to those of
	// node-drainer.
	WaitPods Reason = "AwaitingPodRemoval"
	// WaitClaim: another maintenance object claims the Node. fault-remediation waits until it ends, and requests
	// manual intervention after one hour (ClaimStuck). Action: none if that object makes progress. Otherwise find it
	// with `nvsentinel why <node>` and delete it.
	WaitClaim Reason = "AwaitingClaim"
	// WaitLease: another remediator, such as a NodeHealthCheck, holds the Lease of the node. fault-remediation waits,
	// and requests manual intervention after `noActionRecoveryTimeout` (24h). Action: none while that remediator works.
	// Otherwise find the holder with `kubectl -n medik8s-leases get lease node-<node>` and end its remediation.
	WaitLease Reason = "AwaitingLease"
	// WaitPaused: the emergency stop is on, or its ConfigMap has not been read yet. No maintenance object is created.
	// Action: read in `nvsentinel status` by whom and why it was switched on, and run `nvsentinel resume` when the
	// cause is gone.
	WaitPaused Reason = "Paused"
	// WaitSymptoms: the fault was generated around another remediation of the node and may be its symptom.
	// fault-remediation waits up to 5 minutes for the recovery before it remediates the fault. Action: none.
	WaitSymptoms Reason = "AwaitingSymptomRecovery"
	// WaitBackoff: the last remediation failed or was refused, and the pause before the next attempt is not over. The
	// pause is `backoff` (1m), doubled with each failure up to one hour. Action: none.
	WaitBackoff Reason = "BackingOff"
	// WaitReady: an earlier attempt may have rebooted the machine, and nothing proves that it is Ready since. No
	// second request is sent, because it could interrupt the boot. Action: none at first. If the machine does not
	// boot, check its console. After `unknownTimeout` (40m) the fault escalates or ends with NeverReady.
	WaitReady Reason = "AwaitingNodeReady"
	// WaitHuman: another fault of the node needs manual intervention, so the machine is not replaced before. Action:
	// inspect the node for that fault (`nvsentinel why <node>`), then run `nvsentinel clear <node> <record>`. The
	// replacement follows.
	WaitHuman Reason = "AwaitingManualIntervention"
	// WaitObject: the maintenance object or repair chain run exists and has no result yet. fault-remediation watches
	// it until `unknownTimeout` (40m, 24h for a repair chain). Action: none.
	WaitObject Reason = "AwaitingOutcome"
	// WaitTimedOut: the maintenance object had no result within `unknownTimeout`, and manual intervention was
	// requested. It may still act, so no other remediation starts, and a late result still counts. Action: find out
	// why its controller does not finish it, or delete the object and repair the node yourself.
	WaitTimedOut Reason = "OutcomeTimedOut"
	// NoRepair: the recommended action of the fault is NONE, so no remediation starts and only its recovery ends the
	// quarantine. After `noActionRecoveryTimeout` (24h) manual intervention is requested. Action: remove the cause or wait
	// for your provider. If no monitor reports the recovery, run `nvsentinel release <node>`. To remediate such
	// faults, change their action.
	NoRepair Reason = "NoRepair"
	// WaitRecovery: the remediation succeeded, and the monitor has not reported the recovery yet. After
	// `recoveryTimeout` (30m) manual intervention is requested (NoRecovery). Action: none.
	WaitRecovery Reason = "AwaitingRecovery"
	// ReadError: the maintenance object could not be read, so nothing is known about it. fault-remediation reads it
	// again after 30 seconds. Action: read the error in the log of fault-remediation. Check that the API server
	// responds and that the service account has `get` on the kind of the object.
	ReadError Reason = "ReadError"
	// CreateForbidden: the API server forbids the creation of the maintenance object, because a right is missing or
	// an admission policy rejects it. fault-remediation retries, and requests manual intervention after
	// `noActionRecoveryTimeout` (24h). Action: read the message and grant the right or change the policy.
	CreateForbidden Reason = "CreateForbidden"
	// KindMissing: the API server does not serve the kind of the maintenance object. fault-remediation retries, and
	// requests manual intervention after `noActionRecoveryTimeout` (24h). Action: install the CRD and the controller of that
	// kind, or map the action to another kind in `remediationActions`.
	KindMissing Reason = "KindMissing"
	// Unconfigured: the action of the current attempt is no longer configured with the same kind and namespace, so
	// its maintenance object cannot be read. If no object was seen, manual intervention is requested after
	// `noActionRecoveryTimeout` (24h). Action: restore the action in `remediationActions`.
	Unconfigured Reason = "Unconfigured"
)

// Steps that do something.
const (
	// Reserved: fault-remediation writes the name of the next maintenance object into the record before it creates the
	// object. This prevents a second object after a crash. Action: none.
	Reserved Reason = "Reserved"
	// Create: fault-remediation creates the maintenance object or repair chain run. Action: none.
	Create Reason = "Created"
	// RecordUID: fault-remediation writes into the record that the maintenance object exists. Action: none.
	RecordUID Reason = "UIDRecorded"
	// Succeed: the health rule returns Healthy for the maintenance object, so the fault is remediated.
	// fault-remediation waits for the recovery. Action: none.
	Succeed Reason = "Succeeded"
	// CoveredByRepair: the remediation of another record of the same session also remediates this fault. No object is
	// created for it. Action: none.
	CoveredByRepair Reason = "CoveredByRepair"
	// CoveredByReboot: the node has rebooted since the fault was observed, and a reboot cures this fault. No object
	// is created for it. Action: none.
	CoveredByReboot Reason = "CoveredByReboot"
	// Fail: the health rule returns Unhealthy for the maintenance object, so the attempt is closed. Another attempt,
	// an escalation or manual intervention follows. Action: none at first. `nvsentinel why <node>` shows the message
	// of the object.
	Fail Reason = "Failed"
	// SessionOver: the quarantine session ended before the maintenance object sent a request, so nothing was done.
	// The attempt does not count. Action: none.
	SessionOver Reason = "SessionOver"
	// Release: the reserved name of a maintenance object is not used, because the fault is over or another
	// remediation is needed. The attempt does not count. Action: none.
	Release Reason = "ReservationReleased"
	// Escalate: no attempt of the action is left or can help, so the fault continues with the action that `onFailure`
	// configures. The Event RepairEscalated reports it. Action: none.
	Escalate Reason = "Escalated"
	// Forgive: the label `dgxc.nvidia.com/nvsentinel-repeat-offender` was removed from the Node, so the earlier repairs of this
	// machine no longer count. A fault that was kept because of them still needs its recovery or a release. Action:
	// none, or run `nvsentinel release <node>` if the node is kept.
	Forgive Reason = "Forgiven"
	// Cancel: the fault ended before its remediation had an outcome, so the remediation is closed. Action: none.
	Cancel Reason = "Cancelled"
)

// Steps that end with a person.
const (
	// HumanAction: the action of the fault needs manual intervention, such as CONTACT_SUPPORT or UNKNOWN, or no
	// remediation is configured for it. Action: follow the message in `nvsentinel why <node>`, then run
	// `nvsentinel release <node>`. To automate it, configure the action in `remediationActions`.
	HumanAction Reason = "ManualActionRequired"
	// AttemptsUsedUp: all attempts of the window (`attempts`) were used on this machine and the fault is still open.
	// Action: find out why the repairs failed (`nvsentinel why <node>`), repair the machine, then run
	// `nvsentinel release <node>`.
	AttemptsUsedUp Reason = "AttemptsExhausted"
	// ChainEscalated: a step with `onFailure: escalate` of the repair chain run failed, so the chain is not run
	// again. The action in `onFailure` follows, or manual intervention if none is configured. Action: none if another
	// action follows. Otherwise read the failed step (`nvsentinel trace <node>`), repair the node and run
	// `nvsentinel release <node>`.
	ChainEscalated Reason = "ChainEscalated"
	// ChainMisconfigured: the repair chain or one of its templates is wrong, so the run proves nothing about the
	// node. No other remediation follows. Action: correct the RepairChain or RepairTemplate that the message names,
	// repair the node, then run `nvsentinel release <node>`.
	ChainMisconfigured Reason = "ChainMisconfigured"
	// ChainUnknown: the effect of a step of the repair chain run is unknown, because its object was deleted or
	// changed by others, or its name was in use. No other remediation follows. Action: find out whether the node was
	// repaired (`nvsentinel trace <node>`), repair it if needed, then run `nvsentinel release <node>`.
	ChainUnknown Reason = "ChainUnknown"
	// SignalRefused: the plugin or repair chain refused the remediation as often in a row as `attempts` allows.
	// Nothing was sent, and `onFailure` does not follow. Action: correct the cause in the message (plugin, provider
	// rights or RepairChain), repair the node, then run `nvsentinel release <node>`.
	SignalRefused Reason = "SignalRefused"
	// NeverReady: the machine has not been Ready since its last reboot request, and `unknownTimeout` is over. No
	// further request is sent, because it could interrupt the boot. Action: check the console of the machine and
	// repair it, then run `nvsentinel release <node>`.
	NeverReady Reason = "NeverReady"
	// ClaimStuck: another maintenance object has claimed the Node for an hour, so the remediation cannot start.
	// Action: find the object with `nvsentinel why <node>` and see what it waits for, or delete it. Then repair the
	// node and run `nvsentinel release <node>`.
	ClaimStuck Reason = "ClaimStuck"
	// StrongerFailed: a stronger remediation of the node ended with manual intervention, so the weaker one of this
	// fault does not start. Action: handle the other record first (`nvsentinel why <node>`), then run
	// `nvsentinel release <node>`.
	StrongerFailed Reason = "StrongerFailed"
	// SlotClosed: a remediation of the same group on this node ended with manual intervention, so this fault needs it
	// too. Action: handle the record that the message names (`nvsentinel why <node>`), then run
	// `nvsentinel release <node>`.
	SlotClosed Reason = "EquivalenceGroupClosed"
	// Lost: the maintenance object was deleted before its result was recorded, so its effect is unknown. No new
	// object is created. Action: find out whether the node was repaired, repair it if needed, then run
	// `nvsentinel release <node>`.
	Lost Reason = "Lost"
	// NameTaken: an object that fault-remediation did not create has the name of the maintenance object. Nothing is
	// created. Action: delete or rename that object, repair the node, then run `nvsentinel release <node>`.
	NameTaken Reason = "NameTaken"
	// CreateRefused: the API server rejects the maintenance object as invalid, or the template renders no valid
	// object for this fault. No retry follows. Action: correct the template of the action in `remediationActions`,
	// repair the node, then run `nvsentinel release <node>`.
	CreateRefused Reason = "CreateRefused"
	// UnknownTimeout: the maintenance object had no result within `unknownTimeout` (40m, 24h for a repair chain). It
	// is still watched, and no other remediation starts. Action: find out why its controller does not finish it, or
	// delete the object, repair the node and run `nvsentinel release <node>`.
	UnknownTimeout Reason = "UnknownTimeout"
	// RepeatOffender is the reason of the record too.
	RepeatOffender Reason = record.RepeatOffender
	// NoRecovery: the remediation succeeded, and no monitor reported the recovery within `recoveryTimeout` (30m). The
	// node stays in quarantine. Action: check the node and its monitor. If the node is healthy, run
	// `nvsentinel release <node>`.
	NoRecovery Reason = "NoRecovery"
)

// States of an attempt besides those of the health rule.
const (
	StateLost      = "Lost"
	StateCancelled = "Cancelled"
)
