package lifecycle

import (
	"fmt"
	"maps"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// Metadata of our events beside the provider's own.
const (
	metadataEvent  = "maintenanceEventId"
	metadataCSP    = "csp"
	metadataReason = "reason"
	metadataStart  = "scheduledStartTime"
	metadataEnd    = "scheduledEndTime"
)

// entityMaintenance is the entity type that distinguishes the maintenances of one
// machine, so that the end of one heals no other.
const entityMaintenance = "MAINTENANCE"

// Apply is the document after a verdict. What has to be reported becomes part of it, to be
// sent once it is stored.
func Apply(e maintenance.Event, v Verdict, p Policy, now time.Time) maintenance.Event {
	switch v.Step {
	case Wait:
		return e
	case Finish:
		e.Finished, e.Outcome, e.ExpireAt = true, string(v.Reason), new(instant(now.Add(Retention)))
	case Quarantine:
		e.NodeName = v.Node
		e = report(e, maintenance.Quarantine, v.Reason, p.Strategy, now)
	case Heal:
		e = report(e, maintenance.Healthy, v.Reason, e.Quarantined.Strategy, now)
	case TimeOut:
		e = report(e, maintenance.NotReady, v.Reason, e.Quarantined.Strategy, now)
	}
	return withStatus(e, now)
}

// report puts an event into the document. Each report has an id of its own, which is the
// same for every try of it.
func report(e maintenance.Event, stage maintenance.Stage, why Reason, s record.Strategy, now time.Time) maintenance.Event {
	e.Reports++
	id := record.DerivedID(fmt.Sprintf("csp maintenance %q of %q received %d: telling %d", e.EventID, e.CSP, e.Received.UnixMicro(), e.Reports))
	event := record.Event{
		Version: 1, ID: id, Agent: Agent, CheckName: Check, ComponentClass: e.ResourceType, NodeName: e.NodeName,
		EntitiesImpacted: []record.Entity{
			{EntityType: e.ResourceType, EntityValue: e.ResourceID}, {EntityType: entityMaintenance, EntityValue: e.EventID},
		},
		RecommendedAction: record.ActionNone, GeneratedTimestamp: instant(now), ProcessingStrategy: s, Metadata: metadata(e, why),
	}
	if e.Code != "" {
		event.ErrorCode = []string{e.Code}
	}
	switch stage {
	case maintenance.Quarantine:
		event.IsFatal, event.RecommendedAction = true, e.RecommendedAction
		event.Message = "CSP maintenance scheduled: " + describe(e, why)
	case maintenance.NotReady:
		event.RecommendedAction = record.ActionContactSupport
		event.Message = "CSP maintenance ended, but the node is still not ready: " + describe(e, why)
	case maintenance.Healthy:
		event.IsHealthy = true
		event.Message = map[Reason]string{Canceled: "CSP maintenance cancelled: ", Postponed: "CSP maintenance postponed: "}[why]
		if event.Message == "" {
			event.Message = "CSP maintenance completed: "
		}
		event.Message += describe(e, why)
	}
	e.Waiting = &maintenance.Waiting{Stage: stage, Reason: string(why), Event: event}
	return e
}

// describe is the maintenance in words.
func describe(e maintenance.Event, why Reason) string {
	out := e.Code
	if out == "" {
		out = e.EventID
	}
	if e.ScheduledStart != nil {
		out += " from " + e.ScheduledStart.Format(time.RFC3339)
	}
	if e.ScheduledEnd != nil {
		out += " to " + e.ScheduledEnd.Format(time.RFC3339)
	}
	return out + " (" + string(why) + ")"
}

func metadata(e maintenance.Event, why Reason) map[string]string {
	out := map[string]string{}
	maps.Copy(out, e.Metadata)
	for _, key := range record.OrderKeys {
		delete(out, key) // the provider has no place in our order
	}
	out[metadataEvent], out[metadataCSP], out[metadataReason] = e.EventID, e.CSP, string(why)
	if e.ScheduledStart != nil {
		out[metadataStart] = e.ScheduledStart.Format(time.RFC3339)
	}
	if e.ScheduledEnd != nil {
		out[metadataEnd] = e.ScheduledEnd.Format(time.RFC3339)
	}
	return out
}

// Acknowledge is the document after the connector has taken its event.
func Acknowledge(e maintenance.Event, now time.Time) maintenance.Event {
	if e.Waiting == nil {
		return e
	}
	reported := &maintenance.Report{ID: e.Waiting.Event.ID, Strategy: e.Waiting.Event.ProcessingStrategy, At: instant(now)}
	stage := e.Waiting.Stage
	e.Waiting = nil
	switch stage {
	case maintenance.Quarantine:
		e.Quarantined = reported
	case maintenance.NotReady:
		e.TimedOut = reported
	case maintenance.Healthy:
		if e.CSPStatus.Ended() {
			e.Healed, e.Finished, e.Outcome, e.ExpireAt = reported, true, string(Healed), new(instant(now.Add(Retention)))
			break
		}
		renew(&e) // put off, or taken up again: it comes again
	}
	return withStatus(e, now)
}

// Refuse is the document after the connector has refused its event for good: nothing
// can be reported about it, and a person has to look.
func Refuse(e maintenance.Event, now time.Time) maintenance.Event {
	e.Waiting = nil
	e.Finished, e.Outcome, e.ExpireAt = true, string(EventRefused), new(instant(now.Add(Retention)))
	return withStatus(e, now)
}

// eventOf carries an action's number to its name.
func eventOf(a announcement.Announcement) *protos.HealthEvent {
	return &protos.HealthEvent{RecommendedAction: a.Action}
}
