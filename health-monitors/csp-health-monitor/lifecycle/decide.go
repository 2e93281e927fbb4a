package lifecycle

import (
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// Step is what is to be done about a maintenance.
type Step string

// Steps.
const (
	// Wait: nothing now.
	Wait Step = "wait"
	// Quarantine: the fault is reported.
	Quarantine Step = "quarantine"
	// Heal: the recovery is reported.
	Heal Step = "heal"
	// TimeOut: it is reported that the node does not become ready.
	TimeOut Step = "readiness-timeout"
	// Finish: nothing is left to be done.
	Finish Step = "finish"
)

// Reason is why a step is decided.
type Reason string

// Reasons of a quarantine.
const (
	// Emergency: the provider marks the maintenance as an emergency, so the fault of the node is reported at once.
	// Action: none.
	Emergency Reason = "emergency"
	// Underway: the provider is at work on the machine, so the fault of the node is reported at once. Action:
	// none.
	Underway Reason = "underway"
	// StartPassed: the announced start of the maintenance is past, so the fault of the node is reported at once.
	// Action: none.
	StartPassed Reason = "start-passed"
	// LeadTime: the announced start is at most `triggerQuarantineWorkflowTimeLimitMinutes` (30) ahead, so the
	// fault of the node is reported. Action: none.
	LeadTime Reason = "lead-time"
	// Unplanned: the maintenance is unscheduled and has no announced start, so the fault of the node is reported
	// at once. Action: none.
	Unplanned Reason = "unplanned"
	// StrategyChanged: the fault was reported as PERSIST_ONLY and `processingStrategy` is PROCESS now, so the fault is
	// reported again and fault-quarantine acts on it. Action: none.
	StrategyChanged Reason = "strategy-changed"
)

// Reasons of a recovery.
const (
	// Completed: the provider has completed the maintenance, the delay of `postMaintenanceHealthyDelayMinutes` is
	// over and the node is ready, so the recovery is reported. Action: none.
	Completed Reason = "completed"
	// Canceled: the provider has canceled the maintenance and the node is ready, so the recovery is reported
	// without a delay. Action: none.
	Canceled Reason = "cancelled"
	// NotListed: a provider that lists all its open maintenances does not list this one any more, so the
	// maintenance counts as ended. The recovery is reported when `postMaintenanceHealthyDelayMinutes` are over and
	// the node is ready. Action: none.
	NotListed Reason = "not-listed"
	// Postponed: the provider has moved the start so far ahead that the node can be used until then, so the
	// recovery is reported. The fault is reported again before the new start. Action: none.
	Postponed Reason = "postponed"
	// NotReady: the maintenance has ended or was postponed, and the node is not ready (its Ready condition is not
	// True, or its kubelet is not alive), so the recovery waits. With the step `readiness-timeout` the node has
	// not become ready within `nodeReadinessTimeoutMinutes`, and a health event with the action CONTACT_SUPPORT
	// reports it. Action: find out why the node is not ready (`kubectl describe node <node>`, the log of the
	// kubelet) and repair it. The recovery follows by itself.
	NotReady Reason = "node-not-ready"
	// Recovering: the maintenance has ended, and the recovery waits until `postMaintenanceHealthyDelayMinutes`
	// (15) are over. Action: none.
	Recovering Reason = "healthy-delay"
)

// Reasons of waiting and finishing.
const (
	// Unacknowledged: a health event of the maintenance is stored, and the platform connector has not acknowledged
	// it yet. It is sent again until the connector does. Action: none for a few minutes. If it lasts, check the
	// connector on the node of the monitor and `nvsentinel_csp_monitor_publish_failures_total`.
	Unacknowledged Reason = "unacknowledged"
	// Ahead: the start of the maintenance is more than `triggerQuarantineWorkflowTimeLimitMinutes` (30) ahead, so
	// the node stays in service. Action: none.
	Ahead Reason = "ahead"
	// NoWindow: the maintenance is planned and the provider has not announced a start, so the node stays in
	// service until it does. Action: none.
	NoWindow Reason = "no-window"
	// NodesUnknown: the monitor has not read the Nodes of the cluster yet, so it decides nothing. Action: none
	// after a start. If it lasts, check the right of the monitor to list and watch Nodes.
	NodesUnknown Reason = "nodes-unknown"
	// KubeletUnknown: the Node is Ready, and it is not known yet whether its kubelet is alive, so the recovery
	// waits. With the step `readiness-timeout` this has lasted too long, and a health event with the action
	// CONTACT_SUPPORT reports it. Action: none for ten minutes. If it lasts, check the kubelet and the right of
	// the monitor to get the Leases in `kube-node-lease`.
	KubeletUnknown Reason = "kubelet-unknown"
	// NoNode: the machine of the maintenance has no Node, so nothing is reported. The maintenance waits for a
	// Node, and finishes 7 days after the last time that its announcement names. Action: none.
	NoNode Reason = "no-node"
	// Contested: several Nodes claim the machine in `spec.providerID`, and the provider confirms none of them, or
	// more than one, by its name of the machine. No node is quarantined or released for the maintenance. Action:
	// delete the Node objects that are stale or foreign. The log of the monitor names the machine and the Nodes.
	Contested Reason = "contested"
	// InQuarantine: the fault is reported and the provider has not ended the maintenance. Action: none.
	InQuarantine Reason = "in-quarantine"
	// Overdue: the provider has not ended the maintenance 24 hours after its announced end, so the node stays in
	// quarantine. Action: ask the provider for the state of the maintenance. If the machine is sound, run
	// `nvsentinel release <node>`.
	Overdue Reason = "overdue"
	// NodeAbsent: the maintenance has ended, and the Node of the fault does not exist or its machine has another
	// Node. The recovery waits for that Node for 7 days. Action: none if the node was removed permanently. Otherwise
	// bring it back under the same name.
	NodeAbsent Reason = "node-absent"
	// NodeGone: the Node of the fault has been absent for 7 days since the end of the maintenance, so the
	// maintenance finishes without a recovery. Action: none.
	NodeGone Reason = "node-gone"
	// MachineReplaced: the Node of the fault has another machine now, so the maintenance finishes without a
	// recovery. fault-quarantine ends the faults of the former machine. Action: none.
	MachineReplaced Reason = "machine-replaced"
	// NeverQuarantined: the provider ended the maintenance before a fault was reported, so it finishes and nothing
	// has to recover. Action: none.
	NeverQuarantined Reason = "never-quarantined"
	// Healed: the platform connector has acknowledged the recovery, so the maintenance is finished. Action: none.
	Healed Reason = "recovered"
	// EventRefused: the platform connector refused a health event of the maintenance permanently, so nothing more is
	// reported about it and its status is ERROR. Action: correct the cause that the log and the Event
	// `EventsRejected` name, usually `[[publishers.agent]]` of the connectors. Then cordon the node (`kubectl
	// cordon <node>`) or release it (`nvsentinel release <node>`) yourself.
	EventRefused Reason = "event-refused"
)

// Verdict is what is decided about a maintenance.
type Verdict struct {
	Step   Step
	Reason Reason
	// Node is the node that a quarantine is about.
	Node string
}

func wait(r Reason) Verdict   { return Verdict{Step: Wait, Reason: r} }
func finish(r Reason) Verdict { return Verdict{Step: Finish, Reason: r} }

// Decide is what is to be done about a maintenance now.
func Decide(e maintenance.Event, f Facts, p Policy, now time.Time) Verdict {
	switch {
	case e.Waiting != nil:
		return wait(Unacknowledged)
	case e.Finished:
		return wait(Healed)
	case e.Quarantined == nil:
		return decideUnreported(e, f, p, now)
	case e.CSPStatus.Ended():
		return ended(e, f, p, now)
	}
	return decideReported(e, f, p, now)
}

// decideUnreported: no fault was reported, so none is ever healed.
func decideUnreported(e maintenance.Event, f Facts, p Policy, now time.Time) Verdict {
	if e.CSPStatus.Ended() {
		return finish(NeverQuarantined)
	}
	if !f.Known {
		return wait(NodesUnknown)
	}
	if f.Contested {
		return wait(Contested)
	}
	if f.Node == "" {
		if now.Sub(newest(e)) > DeletedNodeTimeout {
			return finish(NoNode)
		}
		return wait(NoNode)
	}
	why, due := dueBy(e, p, now)
	if !due {
		return wait(why)
	}
	return Verdict{Step: Quarantine, Reason: why, Node: f.Node}
}

// dueBy reports whether the node has to be out of service, and why, or why not yet.
func dueBy(e maintenance.Event, p Policy, now time.Time) (Reason, bool) {
	switch {
	case e.Emergency:
		return Emergency, true
	case e.CSPStatus == maintenance.Underway:
		return Underway, true
	case e.ScheduledStart == nil && e.Kind == maintenance.Unscheduled:
		return Unplanned, true
	case e.ScheduledStart == nil:
		return NoWindow, false
	case !e.ScheduledStart.After(now):
		return StartPassed, true
	case !e.ScheduledStart.After(now.Add(p.Lead)):
		return LeadTime, true
	}
	return Ahead, false
}

// decideReported: the fault was reported and the provider has not ended.
func decideReported(e maintenance.Event, f Facts, p Policy, now time.Time) Verdict {
	switch {
	case !f.Known:
		return wait(NodesUnknown)
	case f.Other:
		return finish(MachineReplaced)
	case f.Contested:
		return wait(Contested)
	case f.Node != "" && e.Quarantined.Strategy == record.PersistOnly && p.Strategy == record.Process:
		return Verdict{Step: Quarantine, Reason: StrategyChanged, Node: f.Node}
	case postponed(e, p, now) && f.Node != "" && f.Ready && f.Kubelet == kubelet.Unknown:
		return wait(KubeletUnknown)
	case postponed(e, p, now) && f.Node != "" && f.ready():
		return Verdict{Step: Heal, Reason: Postponed}
	case postponed(e, p, now):
		return wait(NotReady)
	case e.ScheduledEnd != nil && now.Sub(*e.ScheduledEnd) > late:
		return wait(Overdue)
	}
	return wait(InQuarantine)
}

// postponed reports whether the window, which has not begun, was moved so far that the node
// has time to work.
func postponed(e maintenance.Event, p Policy, now time.Time) bool {
	return e.CSPStatus == maintenance.Pending && !e.Emergency && e.ScheduledStart != nil &&
		e.ScheduledStart.After(now.Add(p.Lead+p.HealthyDelay))
}

// watchedFor is how much longer a node may report Ready while it is unknown whether its
// kubelet is alive: to find out takes ten minutes at most, if its Lease can be read.
const watchedFor = 20 * time.Minute

// ended: the fault was reported and the provider has nothing more to do.
func ended(e maintenance.Event, f Facts, p Policy, now time.Time) Verdict {
	end := e.LastUpdated
	if e.ActualEnd != nil {
		end = *e.ActualEnd
	}
	switch {
	case e.Healed != nil:
		return finish(Healed)
	case !f.Known:
		return wait(NodesUnknown)
	case f.Other:
		return finish(MachineReplaced)
	case f.Contested:
		return wait(Contested)
	case f.Node != e.NodeName && now.Sub(end) > DeletedNodeTimeout:
		return finish(NodeGone)
	case f.Node != e.NodeName:
		return wait(NodeAbsent)
	}
	why, delay := Completed, p.HealthyDelay
	switch {
	case e.Vanished:
		why = NotListed
	case e.CSPStatus == maintenance.Cancelled:
		why, delay = Canceled, 0
	}
	switch {
	case now.Before(end.Add(delay)):
		return wait(Recovering)
	case f.Ready && f.Kubelet == kubelet.Unknown:
		if e.TimedOut == nil && !now.Before(end.Add(delay+p.Readiness+watchedFor)) {
			return Verdict{Step: TimeOut, Reason: KubeletUnknown}
		}
		return wait(KubeletUnknown)
	case f.ready():
		return Verdict{Step: Heal, Reason: why}
	case e.TimedOut == nil && !now.Before(end.Add(delay+p.Readiness)):
		return Verdict{Step: TimeOut, Reason: NotReady}
	}
	return wait(NotReady)
}

// newest is the latest time that the document knows of its maintenance.
func newest(e maintenance.Event) time.Time {
	out := e.Received
	for _, t := range []*time.Time{e.ScheduledStart, e.ScheduledEnd, e.ProviderUpdated} {
		if t != nil && t.After(out) {
			out = *t
		}
	}
	return out
}

// entityProvider is the entity type of a provider.
const entityProvider = "CSP"

// Unreachable is the fault of a provider that cannot be read, reported about the monitor's own
// node. It acts on nothing: no node is worse for it.
func Unreachable(o Origin, node string, since, now time.Time) *maintenance.Waiting {
	e := provider(o, node, since, now)
	e.RecommendedAction = record.ActionContactSupport
	e.Message = fmt.Sprintf("%s cannot be read since %s: maintenance announcements are not detected", o.CSP, since.UTC().Format(time.RFC3339))
	e.ID = record.DerivedID(fmt.Sprintf("csp %q unreachable on %q since %d", o.CSP, node, since.UnixMicro()))
	return &maintenance.Waiting{Stage: maintenance.Quarantine, Reason: CheckUnreachable, Event: e}
}

// Reachable is its end.
func Reachable(o Origin, u maintenance.Unreachable, now time.Time) *maintenance.Waiting {
	e := provider(o, u.NodeName, u.Since, now)
	e.IsHealthy = true
	e.Message = o.CSP + " can be read again"
	e.ID = record.DerivedID(fmt.Sprintf("csp %q reachable again on %q since %d", o.CSP, u.NodeName, u.Since.UnixMicro()))
	return &maintenance.Waiting{Stage: maintenance.Healthy, Reason: CheckUnreachable, Event: e}
}

func provider(o Origin, node string, since, now time.Time) record.Event {
	return record.Event{
		Version: 1, Agent: Agent, CheckName: CheckUnreachable, ComponentClass: "CSP", NodeName: node,
		EntitiesImpacted:  []record.Entity{{EntityType: entityProvider, EntityValue: o.CSP}},
		RecommendedAction: record.ActionNone, GeneratedTimestamp: instant(now), ProcessingStrategy: record.PersistOnly,
		Metadata: map[string]string{"since": since.UTC().Format(time.RFC3339)},
	}
}
