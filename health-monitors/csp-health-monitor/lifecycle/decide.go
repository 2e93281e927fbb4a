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
	// Quarantine: the fault is told.
	Quarantine Step = "quarantine"
	// Heal: the recovery is told.
	Heal Step = "heal"
	// TimeOut: it is told that the node does not get ready.
	TimeOut Step = "readiness-timeout"
	// Finish: nothing is left to be done.
	Finish Step = "finish"
)

// Reason says why.
type Reason string

// Reasons of a quarantine.
const (
	Emergency   Reason = "emergency"
	Underway    Reason = "underway"
	StartPassed Reason = "start-passed"
	LeadTime    Reason = "lead-time"
	Unplanned   Reason = "unplanned"
	ToldToAct   Reason = "told-as-process"
)

// Reasons of a recovery.
const (
	Completed  Reason = "completed"
	Canceled   Reason = "cancelled"
	NotListed  Reason = "not-listed"
	Postponed  Reason = "postponed"
	NotReady   Reason = "node-not-ready"
	Recovering Reason = "healthy-delay"
)

// Reasons of waiting and finishing.
const (
	Unacknowledged   Reason = "unacknowledged"
	Ahead            Reason = "ahead"
	NoWindow         Reason = "no-window"
	NodesUnknown     Reason = "nodes-unknown"
	KubeletUnknown   Reason = "kubelet-unknown"
	NoNode           Reason = "no-node"
	Contested        Reason = "contested"
	InQuarantine     Reason = "in-quarantine"
	Overdue          Reason = "overdue"
	NodeAbsent       Reason = "node-absent"
	NodeGone         Reason = "node-gone"
	MachineReplaced  Reason = "machine-replaced"
	NeverQuarantined Reason = "never-quarantined"
	Healed           Reason = "healed"
	EventRefused     Reason = "event-refused"
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
		return untold(e, f, p, now)
	case e.CSPStatus.Ended():
		return ended(e, f, p, now)
	}
	return told(e, f, p, now)
}

// untold: no fault was told, so none is ever healed.
func untold(e maintenance.Event, f Facts, p Policy, now time.Time) Verdict {
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
		if now.Sub(newest(e)) > Gone {
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

// dueBy says whether the node has to be out of service, and why, or why not yet.
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

// told: the fault was told and the provider has not ended.
func told(e maintenance.Event, f Facts, p Policy, now time.Time) Verdict {
	switch {
	case !f.Known:
		return wait(NodesUnknown)
	case f.Other:
		return finish(MachineReplaced)
	case f.Contested:
		return wait(Contested)
	case f.Node != "" && e.Quarantined.Strategy == record.PersistOnly && p.Strategy == record.Process:
		return Verdict{Step: Quarantine, Reason: ToldToAct, Node: f.Node}
	case putOff(e, p, now) && f.Node != "" && f.Ready && f.Kubelet == kubelet.Unknown:
		return wait(KubeletUnknown)
	case putOff(e, p, now) && f.Node != "" && f.ready():
		return Verdict{Step: Heal, Reason: Postponed}
	case putOff(e, p, now):
		return wait(NotReady)
	case e.ScheduledEnd != nil && now.Sub(*e.ScheduledEnd) > late:
		return wait(Overdue)
	}
	return wait(InQuarantine)
}

// putOff says that the window, which has not begun, was moved so far that the node
// has time to work.
func putOff(e maintenance.Event, p Policy, now time.Time) bool {
	return e.CSPStatus == maintenance.Pending && !e.Emergency && e.ScheduledStart != nil &&
		e.ScheduledStart.After(now.Add(p.Lead+p.HealthyDelay))
}

// watchedFor is how much longer a node may say Ready without anybody knowing whether its
// kubelet is alive: to find out takes ten minutes at most, if its Lease can be read.
const watchedFor = 20 * time.Minute

// ended: the fault was told and the provider has nothing more to do.
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
	case f.Node != e.NodeName && now.Sub(end) > Gone:
		return finish(NodeGone)
	case f.Node != e.NodeName:
		return wait(NodeAbsent)
	}
	why, delay := Completed, p.HealthyDelay
	switch {
	case e.Vanished:
		why = NotListed
	case e.CSPStatus == maintenance.Called:
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

// Unreachable is the fault of a provider that cannot be read, told of the monitor's own
// node. It acts on nothing: no node is worse for it.
func Unreachable(o Origin, node string, since, now time.Time) *maintenance.Waiting {
	e := provider(o, node, since, now)
	e.RecommendedAction = record.ActionContactSupport
	e.Message = fmt.Sprintf("%s cannot be read since %s: maintenance that it announces is not seen", o.CSP, since.UTC().Format(time.RFC3339))
	e.ID = record.DerivedID(fmt.Sprintf("csp %q unreachable on %q since %d", o.CSP, node, since.UnixMicro()))
	return &maintenance.Waiting{Stage: maintenance.Quarantine, Reason: CheckUnreachable, Event: e}
}

// Reachable is its end.
func Reachable(o Origin, u maintenance.Unreachable, now time.Time) *maintenance.Waiting {
	e := provider(o, u.NodeName, u.Since, now)
	e.IsHealthy = true
	e.Message = o.CSP + " is read again"
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
