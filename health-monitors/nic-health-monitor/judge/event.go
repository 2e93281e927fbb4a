package judge

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/fabric"
)

// MetadataLocation is the PCI address of the card.
const MetadataLocation = "pci"

// Event is the health event of what was told of a node at a time. A fault and
// its end name the same entities and code.
func (t Told) Event(node, boot string, at time.Time) *protos.HealthEvent {
	e := &protos.HealthEvent{
		Version: 1, Agent: fabric.Agent, ComponentClass: fabric.ComponentClass, CheckName: t.Key.Check, NodeName: node,
		IsFatal: t.Fatal, IsHealthy: t.Healthy, Message: t.Message, RecommendedAction: record.ActionNumber(t.Action),
		ErrorCode: []string{t.Key.Code}, GeneratedTimestamp: timestamppb.New(at), ProcessingStrategy: record.StrategyNumber(t.Strategy),
		EntitiesImpacted: []*protos.Entity{{EntityType: fabric.EntityNIC, EntityValue: t.Key.Device}},
		Metadata:         map[string]string{record.MetadataBootID: boot, MetadataLocation: t.Location},
	}
	if t.Key.Port != "" {
		e.EntitiesImpacted = append(e.EntitiesImpacted, &protos.Entity{EntityType: fabric.EntityPort, EntityValue: t.Key.Port})
	}
	return e
}
