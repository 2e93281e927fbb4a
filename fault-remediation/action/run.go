package action

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// RunKind is the kind of runs of repair chains.
const RunKind = "RepairRun"

// Fault is what a run of a chain receives about the fault, in the shape of RepairRun's
// spec.fault and within its bounds.
type Fault struct {
	Record             string            `json:"record"`
	Session            string            `json:"session"`
	Action             string            `json:"action"`
	Agent              string            `json:"agent,omitempty"`
	CheckName          string            `json:"checkName,omitempty"`
	ComponentClass     string            `json:"componentClass,omitempty"`
	ErrorCode          []string          `json:"errorCode,omitempty"`
	EntitiesImpacted   []Entity          `json:"entitiesImpacted,omitempty"`
	Message            string            `json:"message,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	GeneratedTimestamp string            `json:"generatedTimestamp,omitempty"`
}

// Entity is something that a fault is about.
type Entity struct {
	EntityType  string `json:"entityType"`
	EntityValue string `json:"entityValue"`
}

// Bounds of a fault in a run, which has to fit into etcd with the trace of all its
// steps: the event itself may have more.
const (
	maxCodes    = 64
	maxEntities = 64
	maxMessage  = 4 << 10
	maxMetadata = 64
	maxName     = 253
	maxValue    = 512
)

// faultOf is what a run receives; what is longer than a run may hold is cut.
func faultOf(r record.Record, session string, asked record.Action) Fault {
	e := r.Event
	f := Fault{
		Record: r.ID, Session: session, Action: string(asked), Agent: cut(e.Agent, maxName), CheckName: cut(e.CheckName, maxName),
		ComponentClass: cut(e.ComponentClass, maxName), Message: cut(e.Message, maxMessage),
	}
	if !e.GeneratedTimestamp.IsZero() {
		f.GeneratedTimestamp = e.GeneratedTimestamp.UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	for _, code := range e.ErrorCode[:min(len(e.ErrorCode), maxCodes)] {
		f.ErrorCode = append(f.ErrorCode, cut(code, maxName))
	}
	for _, x := range e.EntitiesImpacted[:min(len(e.EntitiesImpacted), maxEntities)] {
		f.EntitiesImpacted = append(f.EntitiesImpacted, Entity{cut(x.EntityType, maxName), cut(x.EntityValue, maxValue)})
	}
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		if len(f.Metadata) == maxMetadata || len(key) > maxName {
			continue
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[key] = cut(e.Metadata[key], maxValue)
	}
	return f
}

// cut shortens a text to n bytes, at the end of a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
