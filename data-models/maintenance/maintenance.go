// Package maintenance is the stored document of a maintenance that a cloud provider
// announced for a machine: its names, its stages, and what is reported about it. It does no
// I/O and reads no clock.
package maintenance

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Status is how far a maintenance has come, the provider's and our part together. It
// is a view for people and queries: nothing is decided by it.
type Status string

// Statuses, in their usual order.
const (
	// Detected: announced, and nothing has been done.
	Detected Status = "DETECTED"
	// QuarantineTriggered: the fault was reported, the maintenance has not begun.
	QuarantineTriggered Status = "QUARANTINE_TRIGGERED"
	// Ongoing: the provider is at work.
	Ongoing Status = "MAINTENANCE_ONGOING"
	// Complete: the provider has ended it; the recovery has not been reported, or there is
	// none to report.
	Complete Status = "MAINTENANCE_COMPLETE"
	// Canceled: the provider has called it off.
	Canceled Status = "CANCELLED"
	// ReadinessTimeout: the provider has ended it and the node did not get ready in
	// time. The recovery is still reported when it does.
	ReadinessTimeout Status = "NODE_READINESS_TIMEOUT"
	// HealthyTriggered: the recovery was reported.
	HealthyTriggered Status = "HEALTHY_TRIGGERED"
	// NodeGone: the node has another machine now, or is gone for good.
	NodeGone Status = "NODE_GONE"
	// Failed: an event of it was refused for good; a person has to look.
	Failed Status = "ERROR"
)

// Kind is whether the provider planned the maintenance.
type Kind string

// Kinds.
const (
	Scheduled   Kind = "SCHEDULED"
	Unscheduled Kind = "UNSCHEDULED"
)

// CSPStatus is the progress that the provider reports.
type CSPStatus string

// States of the provider, in their order.
const (
	Pending   CSPStatus = "PENDING"
	Underway  CSPStatus = "ONGOING"
	Completed CSPStatus = "COMPLETED"
	Cancelled CSPStatus = "CANCELLED"
)

// Ended reports whether the provider has nothing more to do.
func (c CSPStatus) Ended() bool { return c == Completed || c == Cancelled }

// Stage is one thing that is reported about a maintenance.
type Stage string

// Stages.
const (
	Quarantine Stage = "quarantine"
	NotReady   Stage = "readiness-timeout"
	Healthy    Stage = "healthy"
)

// Report is a health event that was acknowledged.
type Report struct {
	ID       string          `json:"id"`
	Strategy record.Strategy `json:"strategy"`
	At       time.Time       `json:"at"`
}

// Waiting is a health event that was decided and is not acknowledged yet. It is
// stored before it is sent, so that every try sends the same.
type Waiting struct {
	Stage  Stage        `json:"stage"`
	Reason string       `json:"reason"`
	Event  record.Event `json:"healthevent"`
}

// Event is the document of one maintenance of one machine. CSP and EventID name it
// over its whole life.
type Event struct {
	// EventID is the provider's id of the maintenance and the machine together.
	EventID     string `json:"eventId"`
	CSP         string `json:"csp"`
	ClusterName string `json:"clusterName"`
	// ResourceType and ResourceID are the machine by the provider's names.
	ResourceType string `json:"resourceType"`
	ResourceID   string `json:"resourceId"`
	// NodeName is the Node of that machine; empty until there is one.
	NodeName string `json:"nodeName"`
	Kind     Kind   `json:"maintenanceType"`
	// Code is the provider's name of the kind of maintenance.
	Code      string    `json:"maintenanceCode"`
	Status    Status    `json:"status"`
	CSPStatus CSPStatus `json:"cspStatus"`
	// Emergency asks for the quarantine whatever the window.
	Emergency bool `json:"emergency"`
	// Vanished is set when the provider ended it by not listing it any more.
	Vanished bool `json:"vanished"`
	// ScheduledStart and ScheduledEnd are the announced window, ActualStart and
	// ActualEnd what has happened; null where that is not known.
	ScheduledStart *time.Time `json:"scheduledStartTime"`
	ScheduledEnd   *time.Time `json:"scheduledEndTime"`
	ActualStart    *time.Time `json:"actualStartTime"`
	ActualEnd      *time.Time `json:"actualEndTime"`
	// Received is when it was first read, LastUpdated when this document last changed,
	// ProviderUpdated when the provider last changed it, as it reports.
	Received        time.Time  `json:"eventReceivedTimestamp"`
	LastUpdated     time.Time  `json:"lastUpdatedTimestamp"`
	ProviderUpdated *time.Time `json:"providerLastUpdated"`

	RecommendedAction record.Action     `json:"recommendedAction"`
	Description       string            `json:"description"`
	Metadata          map[string]string `json:"metadata"`

	// Occurrence counts the times that the provider took it up again after its end, or
	// put it off after the quarantine; from 0.
	Occurrence int `json:"occurrence"`
	// Reports counts the events that were decided, over all occurrences.
	Reports int `json:"tellings"`
	// Quarantined, TimedOut and Healed are what was reported in this occurrence.
	Quarantined *Report `json:"quarantined"`
	TimedOut    *Report `json:"timedOut"`
	Healed      *Report `json:"healed"`
	// Waiting is what is to be reported next.
	Waiting *Waiting `json:"waiting"`
	// Finished is set when nothing is left to be done; then ExpireAt is when the store
	// may forget it. Outcome is the reason.
	Finished bool       `json:"finished"`
	Outcome  string     `json:"outcome"`
	ExpireAt *time.Time `json:"expireAt"`
	// Revision counts the writes of the document, from 1; 0 is one that is not stored.
	Revision int64 `json:"revision"`
	// Extra is what the stored document has that this version does not know; it is
	// stored again with the rest.
	Extra *extra.Extra `json:"-"`
}

// Provider is the document of one provider: how far it has been read.
type Provider struct {
	CSP string `json:"csp"`
	// Checkpoint is that of the last reading that was stored.
	Checkpoint string `json:"checkpoint"`
	// ReadAt is when that was.
	ReadAt time.Time `json:"readAt"`
	// Unreachable is the fault of a provider that cannot be read; null when it can.
	Unreachable *Unreachable `json:"unreachable"`
	// Revision counts the writes of the document, from 1; 0 is one that is not stored.
	Revision int64 `json:"revision"`
	// Extra is what the stored document has that this version does not know; it is
	// stored again with the rest.
	Extra *extra.Extra `json:"-"`
}

// Unreachable is the fault of a provider that cannot be read.
type Unreachable struct {
	// NodeName is the node of the monitor that reported it.
	NodeName string    `json:"nodeName"`
	Since    time.Time `json:"since"`
	Reported *Report   `json:"told"`
	Waiting  *Waiting  `json:"waiting"`
}
