// Package cloudevent turns a stored health event record into the CloudEvent
// that receivers outside the cluster get. It is pure: the same record gives the
// same event, byte for byte, however often it is sent.
package cloudevent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/record"
)

const (
	// Type of every event.
	Type = "com.nvidia.nvsentinel.health.v1"
	// ClusterKey is the key of the metadata that names the cluster.
	ClusterKey = "cluster"
)

// cluster is what can stand in the event's source as it is.
var cluster = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// Frame is what all events of one cluster have in common.
type Frame struct {
	source   string
	metadata map[string]string
}

// NewFrame takes the operator's metadata, which goes with every event; its key
// "cluster" names the cluster and makes the event's source.
func NewFrame(metadata map[string]string) (Frame, error) {
	name := metadata[ClusterKey]
	if name == "" {
		return Frame{}, errors.New(`the key cluster is missing: set it, because every event contains it`)
	}
	if !cluster.MatchString(name) {
		return Frame{}, fmt.Errorf("cluster %q must consist of letters, digits, '.', '_' and '-', with a letter or digit at both ends", name)
	}
	return Frame{source: "nvsentinel://" + name + "/healthevents", metadata: maps.Clone(metadata)}, nil
}

// Of is the event of a record. Its id is the record's: a receiver that has seen
// (source, id) has seen this event. A record that makes no valid event is an
// error.
func (f Frame) Of(r record.Record) (event.Event, error) {
	e := event.New()
	e.SetID(r.ID)
	e.SetType(Type)
	e.SetSource(f.source)
	at := r.Event.GeneratedTimestamp
	if at.IsZero() {
		at = r.CreatedAt
	}
	e.SetTime(at.UTC())
	if err := e.SetData(event.ApplicationJSON, data{Metadata: f.metadata, HealthEvent: healthEventOf(r.Event)}); err != nil {
		return e, fmt.Errorf("encoding the data of record %q: %w", r.ID, err)
	}
	if err := e.Validate(); err != nil {
		return e, fmt.Errorf("encoding record %q as a CloudEvent: %w", r.ID, err)
	}
	return e, nil
}

// data is the event's payload, in the form that existing receivers know.
type data struct {
	Metadata    map[string]string `json:"metadata"`
	HealthEvent healthEvent       `json:"healthEvent"`
}

type healthEvent struct {
	Version                 uint32            `json:"version"`
	Agent                   string            `json:"agent"`
	ComponentClass          string            `json:"componentClass"`
	CheckName               string            `json:"checkName"`
	IsFatal                 bool              `json:"isFatal"`
	IsHealthy               bool              `json:"isHealthy"`
	Message                 string            `json:"message"`
	RecommendedAction       record.Action     `json:"recommendedAction"`
	CustomRecommendedAction string            `json:"customRecommendedAction,omitempty"`
	ErrorCode               []string          `json:"errorCode"`
	EntitiesImpacted        []entity          `json:"entitiesImpacted"`
	Metadata                map[string]string `json:"metadata,omitempty"`
	GeneratedTimestamp      string            `json:"generatedTimestamp"`
	NodeName                string            `json:"nodeName"`
	QuarantineOverrides     *override         `json:"quarantineOverrides,omitempty"`
	DrainOverrides          *override         `json:"drainOverrides,omitempty"`
	ProcessingStrategy      record.Strategy   `json:"processingStrategy"`

	extra *extra.Extra
}

type entity struct {
	EntityType  string `json:"entityType"`
	EntityValue string `json:"entityValue"`
}

type override struct {
	Force bool `json:"force"`
	Skip  bool `json:"skip"`
}

// MarshalJSON adds the members of the stored event that this version does not know, by
// their stored names: an event is sent once.
func (h healthEvent) MarshalJSON() ([]byte, error) {
	type plain healthEvent
	body, err := json.Marshal(plain(h))
	if err != nil || h.extra == nil {
		return body, err
	}
	return (&extra.Extra{Fields: h.extra.Fields}).MergeJSON(body, 0)
}

func healthEventOf(e record.Event) healthEvent {
	h := healthEvent{
		Version: e.Version, Agent: e.Agent, ComponentClass: e.ComponentClass, CheckName: e.CheckName,
		IsFatal: e.IsFatal, IsHealthy: e.IsHealthy, Message: e.Message,
		RecommendedAction: actionOf(e), CustomRecommendedAction: e.CustomRecommendedAction,
		// Receivers get empty lists, never null.
		ErrorCode: append([]string{}, e.ErrorCode...), EntitiesImpacted: make([]entity, 0, len(e.EntitiesImpacted)),
		Metadata: e.Metadata, NodeName: e.NodeName, ProcessingStrategy: e.ProcessingStrategy,
		QuarantineOverrides: overrideOf(e.QuarantineOverrides), DrainOverrides: overrideOf(e.DrainOverrides), extra: e.Extra,
	}
	if !e.GeneratedTimestamp.IsZero() {
		h.GeneratedTimestamp = e.GeneratedTimestamp.UTC().Format(time.RFC3339Nano)
	}
	for _, x := range e.EntitiesImpacted {
		h.EntitiesImpacted = append(h.EntitiesImpacted, entity(x))
	}
	return h
}

// actionOf is the action as far as this version understands it; the text of another one
// is for the receiver to read.
func actionOf(e record.Event) record.Action {
	if a := e.Action(); a != record.ActionUnknown {
		return a
	}
	return e.RecommendedAction
}

func overrideOf(o *record.Override) *override {
	if o == nil {
		return nil
	}
	return &override{Force: o.Force, Skip: o.Skip}
}
