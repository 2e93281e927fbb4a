package bridge

import (
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
)

const (
	// Agent of the events.
	Agent = "node-health-check"
	// Check of the events, and type of the node's condition.
	Check = "NodeHealthCheck"
)

// namespace of the events' ids.
var namespace = uuid.MustParse("b2a4f0de-73c1-4e0c-9a55-31d0c7c86a1e")

// Fault is what is reported of a remediation's node, and Recovery its end.
func Fault(o *v1alpha1.HealthEventRemediation) *protos.HealthEvent {
	e := frame(o, "fault", "1")
	e.IsFatal, e.GeneratedTimestamp = true, timestamppb.New(o.CreationTimestamp.Time)
	e.Message = fmt.Sprintf("node %s is unhealthy for too long according to NodeHealthCheck %s", NodeOf(o), owner(o))
	switch action := record.Action(o.Spec.RecommendedAction); {
	case action == "":
		e.RecommendedAction = protos.RecommendedAction_RESTART_VM
	case action.Known():
		e.RecommendedAction = record.ActionNumber(action)
	default: // of a newer version: a person's here, never a harsher one
		e.RecommendedAction = protos.RecommendedAction_UNKNOWN
		e.Metadata[record.MetadataUnknownAction] = string(action)
	}
	return e
}

// Recovery ends the Fault of a remediation that is being deleted.
func Recovery(o *v1alpha1.HealthEventRemediation) *protos.HealthEvent {
	e := frame(o, "recovery", "2")
	e.IsHealthy, e.Message = true, record.HealthyMessage
	if o.DeletionTimestamp != nil {
		e.GeneratedTimestamp = timestamppb.New(o.DeletionTimestamp.Time)
	}
	return e
}

// frame is what both have in common. The object is their outbox: its fault is number
// one and the recovery number two, in whatever order they arrive; it counts in one run.
func frame(o *v1alpha1.HealthEventRemediation, part, number string) *protos.HealthEvent {
	e := &protos.HealthEvent{
		Version: 1, Id: uuid.NewSHA1(namespace, []byte(part+"\x00"+string(o.UID))).String(),
		Agent: Agent, CheckName: Check, ComponentClass: "Node", NodeName: NodeOf(o), ErrorCode: []string{"NODE_UNHEALTHY"},
		EntitiesImpacted:   []*protos.Entity{{EntityType: "NodeHealthCheck", EntityValue: owner(o)}},
		Metadata:           map[string]string{record.MetadataSeq: number, record.MetadataSeqEpoch: string(o.UID), record.MetadataSeqRuns: "object"},
		ProcessingStrategy: protos.ProcessingStrategy_PERSIST_ONLY,
	}
	if acts(o) {
		e.ProcessingStrategy = protos.ProcessingStrategy_PROCESS
	}
	return e
}
