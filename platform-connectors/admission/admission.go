// Package admission holds what the ingest endpoint accepts: it turns a wire event
// into one that every store accepts, names what it had to cut, and refuses what
// cannot be understood. It does no I/O and reads no clock.
package admission

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Limits of one event and of one batch.
const (
	// MaxMessage is in bytes.
	MaxMessage = 32 << 10
	// MaxEntities counts entitiesImpacted.
	MaxEntities = 1024
	// MaxCodes counts errorCode.
	MaxCodes = 256
	// MaxPairs bounds entities times codes, the number of faults of one event.
	MaxPairs = 4096
	// MaxSubUnits counts the entities that narrow a device (GPC, TPC, SM, NVLINK,
	// NICPort), for each of which every device and code of the event stands.
	MaxSubUnits = 256
	// MaxFaultBytes bounds what the names of all faults of one event take: devices
	// times codes, each with all sub-units.
	MaxFaultBytes = 256 << 10
	// MaxMetadata counts metadata entries, those the connector adds included.
	MaxMetadata = 64
	// MaxName bounds agent, componentClass, checkName, nodeName and
	// customRecommendedAction, in bytes; a longer one is refused.
	MaxName = 253
	// MaxText bounds one entity type, entity value, error code or metadata key,
	// in bytes; a longer one is cut.
	MaxText = 512
	// MaxMetadataValue is in bytes; a longer value is cut.
	MaxMetadataValue = 4 << 10
	// MaxUnread bounds the fields of one event that this version does not know, in bytes;
	// more are left out.
	MaxUnread = 16 << 10
	// MaxEvents bounds a batch; the publisher of a larger one is refused and
	// sends its events in smaller batches.
	MaxEvents = 4096
)

// Cut names one thing the connector changed in an event it accepted. It is the label
// value of the cuts counter.
type Cut string

// Cuts.
const (
	CutControl         Cut = "control-characters"
	CutMessage         Cut = "message"
	CutEntities        Cut = "entities"
	CutCodes           Cut = "codes"
	CutPairs           Cut = "entities-x-codes"
	CutSubUnits        Cut = "sub-units"
	CutFaultBytes      Cut = "fault-bytes"
	CutMetadata        Cut = "metadata"
	CutText            Cut = "text"
	CutOverride        Cut = "override"
	CutUnknownAction   Cut = "unknown-action"
	CutUnknownStrategy Cut = "unknown-strategy"
	CutUnread          Cut = "unknown-fields"
	// CutUTF8 is a whole request with text that is not UTF-8; see Decode.
	CutUTF8 Cut = "invalid-utf8"
)

// Cuts lists every cut, in a fixed order.
func Cuts() []Cut {
	return []Cut{
		CutControl, CutMessage, CutEntities, CutCodes, CutPairs, CutSubUnits,
		CutFaultBytes, CutMetadata, CutText, CutOverride, CutUnknownAction, CutUnknownStrategy, CutUnread, CutUTF8,
	}
}

// MetadataDroppedOverride is the metadata key that lists the overrides that asked for
// force and skip. Those of values that are not known are in package record.
const MetadataDroppedOverride = "droppedOverrides"

// Reason is why an event was refused. It is the label value of the refusals
// counter.
type Reason string

// Reasons of a refusal.
const (
	// Missing: a required field of the health event is empty (`agent`, `checkName`, `nodeName`,
	// `generatedTimestamp`, or `customRecommendedAction` of a custom action), so the event is refused. Action:
	// correct the monitor that sent it. The answer names the field.
	Missing Reason = "missing"
	// TooLong: a name in the health event has more than 253 bytes, so the event is refused. Action: correct the
	// monitor that sent it. The answer names the field.
	TooLong Reason = "too-long"
	// Malformed: the id or the time of the health event is not valid, or the request is not a HealthEvents
	// message, so it is refused. Action: correct the monitor that sent it. The answer names the field.
	Malformed Reason = "malformed"
	// ForeignNode: the health event is about another node than that of the connector, so it is refused. Action:
	// correct the node name in the configuration of the monitor, or make its agent `clusterWide = true` in
	// `[[publishers.agent]]`.
	ForeignNode Reason = "foreign-node"
	// TooMany: a request has too many health events, or a recovery names too many entities and codes, so it is
	// refused. Action: have the monitor send smaller requests, or several recoveries.
	TooMany Reason = "too-many"
	// Foreseeable: the id of the health event can be computed by others, so the event is refused. Action: have the
	// monitor give random ids (UUIDs of version 7 or 4), or none.
	Foreseeable Reason = "predictable-id"
)

// Reasons lists every reason, in a fixed order.
func Reasons() []Reason {
	return []Reason{Missing, TooLong, Malformed, ForeignNode, TooMany, Foreseeable}
}

// Refusal is the error of an event the connector does not accept.
type Refusal struct {
	// Field is the wire name, with the event's place in the batch.
	Field   string
	Reason  Reason
	Problem string
}

// Error names the field and the problem.
func (r *Refusal) Error() string { return r.Field + ": " + r.Problem }

// Admitted is an accepted event and what had to be cut for it.
type Admitted struct {
	Event record.Event
	Cuts  []Cut
}

// Batch normalises a batch for the connector of the named node; without a name
// events of any node are accepted. It is accepted or refused whole: the error is
// the *Refusal of the first bad event.
func Batch(events []*protos.HealthEvent, node string) ([]Admitted, error) {
	if len(events) > MaxEvents {
		return nil, &Refusal{"events", TooMany, fmt.Sprintf("%d events in one batch, at most %d", len(events), MaxEvents)}
	}
	out := make([]Admitted, 0, len(events))
	for i, p := range events {
		e, cuts, err := Normalise(p, node)
		if err != nil {
			refusal := *err
			refusal.Field = fmt.Sprintf("events[%d].%s", i, err.Field)
			return nil, &refusal
		}
		out = append(out, Admitted{e, cuts})
	}
	return out, nil
}

// Normalise turns a wire event into one that every store accepts, for the
// connector of the named node, or of any node. It is a function of its arguments only and
// changes nothing when applied again, so a re-sent event keeps its digest. An
// empty id stays empty: the caller gives one.
func Normalise(p *protos.HealthEvent, node string) (record.Event, []Cut, *Refusal) {
	n := &normaliser{event: record.FromProto(p)}
	n.clean()
	if refusal := n.refuse(p, node); refusal != nil {
		return record.Event{}, nil, refusal
	}
	if refusal := n.cutLists(); refusal != nil {
		return record.Event{}, nil, refusal
	}
	n.cutMetadata(n.notes(p))
	return n.event, n.cuts, nil
}

// refuse checks what has no harmless replacement.
func (n *normaliser) refuse(p *protos.HealthEvent, node string) *Refusal {
	e := &n.event
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"agent", e.Agent, true},
		{"componentClass", e.ComponentClass, false},
		{"checkName", e.CheckName, true},
		{"nodeName", e.NodeName, true},
		{"customRecommendedAction", e.CustomRecommendedAction, e.RecommendedAction == record.ActionCustom},
	} {
		if f.required && strings.TrimSpace(f.value) == "" {
			return &Refusal{f.name, Missing, "is empty"}
		}
		if len(f.value) > MaxName {
			return &Refusal{f.name, TooLong, fmt.Sprintf("has %d bytes, at most %d", len(f.value), MaxName)}
		}
	}
	if node != "" && e.NodeName != node {
		return &Refusal{"nodeName", ForeignNode, fmt.Sprintf("is %q, and this is the connector of node %q", e.NodeName, node)}
	}
	if p.GetGeneratedTimestamp() == nil {
		return &Refusal{"generatedTimestamp", Missing, "is empty"}
	}
	if err := p.GetGeneratedTimestamp().CheckValid(); err != nil {
		return &Refusal{"generatedTimestamp", Malformed, "is not a time between the years 1 and 9999"}
	}
	return n.checkID(node != "")
}

// checkID accepts an empty id and a UUID in its usual form. From a publisher of one
// node it takes random ones only, of version 4 or 7: ids are those of all nodes, and
// with one that can be computed it could take the place of another publisher's event
// before that comes.
func (n *normaliser) checkID(random bool) *Refusal {
	id := n.event.ID
	if id == "" {
		return nil
	}
	parsed, err := uuid.Parse(id)
	if err != nil || len(id) != 36 || parsed == uuid.Nil {
		return &Refusal{"id", Malformed, fmt.Sprintf("%.64q is not a UUID", id)}
	}
	if v := parsed.Version(); random && (parsed.Variant() != uuid.RFC4122 || v != 4 && v != 7) {
		return &Refusal{"id", Foreseeable, fmt.Sprintf("%s is not a random UUID: use a UUID of version 7 or 4, or omit the id", id)}
	}
	n.event.ID = parsed.String()
	return nil
}

// notes replaces what the connector does not know and returns the metadata that
// names it.
func (n *normaliser) notes(p *protos.HealthEvent) map[string]string {
	notes := map[string]string{}
	if a := p.GetRecommendedAction(); protos.RecommendedAction_name[int32(a)] == "" {
		notes[record.MetadataUnknownAction] = strconv.Itoa(int(a))
		n.cut(CutUnknownAction)
	}
	if s := p.GetProcessingStrategy(); protos.ProcessingStrategy_name[int32(s)] == "" {
		notes[record.MetadataUnknownStrategy] = strconv.Itoa(int(s))
		n.cut(CutUnknownStrategy)
	}
	var dropped []string
	for _, o := range []struct {
		name     string
		override **record.Override
	}{
		{"quarantineOverrides", &n.event.QuarantineOverrides},
		{"drainOverrides", &n.event.DrainOverrides},
	} {
		if *o.override != nil && (*o.override).Force && (*o.override).Skip {
			*o.override = nil
			dropped = append(dropped, o.name)
			n.cut(CutOverride)
		}
	}
	if len(dropped) > 0 {
		notes[MetadataDroppedOverride] = strings.Join(dropped, ",")
	}
	return notes
}
