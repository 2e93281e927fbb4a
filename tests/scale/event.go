package scale

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// pen writes events as the kernel log's monitors of nodes would.
type pen struct {
	epoch string
	seq   atomic.Uint64
}

func newPen() *pen { return &pen{epoch: uuid.NewString()} }

// fault is fatal, and for a person to repair: no reboot follows.
func (p *pen) fault(node string) *protos.HealthEvent {
	e := p.event(node)
	e.IsFatal, e.ErrorCode, e.RecommendedAction = true, []string{"95"}, protos.RecommendedAction_CONTACT_SUPPORT
	e.Message = fmt.Sprintf("NVRM: Xid (PCI:%s): 95, pid=%s, uncontained ECC error", fleet.PCI(0), e.GetMetadata()[record.MetadataSeq]) // none repeats another
	return e
}

// recovery ends the faults of a node.
func (p *pen) recovery(node string) *protos.HealthEvent {
	e := p.event(node)
	e.IsHealthy, e.Message = true, record.HealthyMessage
	return e
}

// murmur is an event that nothing follows from; no two are alike.
func (p *pen) murmur(node string, i int) *protos.HealthEvent {
	e := p.event(node)
	e.ErrorCode = []string{strconv.Itoa(1000 + i%500)}
	e.Message = fmt.Sprintf("NVRM: Xid (PCI:%s): %s, event %d", fleet.PCI(0), e.GetErrorCode()[0], i)
	return e
}

func (p *pen) event(node string) *protos.HealthEvent {
	return &protos.HealthEvent{
		Version: 1, Id: uuid.Must(uuid.NewV7()).String(), Agent: fleet.Monitor, ComponentClass: "GPU",
		CheckName: "SysLogsXIDError", NodeName: node, GeneratedTimestamp: timestamppb.Now(),
		EntitiesImpacted: []*protos.Entity{{EntityType: "PCI", EntityValue: fleet.PCI(0)}, {EntityType: "GPU_UUID", EntityValue: fleet.UUID(node, 0)}},
		Metadata:         map[string]string{record.MetadataSeq: strconv.FormatUint(p.seq.Add(1), 10), record.MetadataSeqEpoch: p.epoch, record.MetadataSeqRuns: "scale"},
	}
}

// stored is an event as the connector of node i would store it.
func stored(e *protos.HealthEvent, i int, uid string) record.Record {
	event := record.FromProto(e)
	seq, epoch, _ := event.Seq()
	node := realNode(i)
	return record.Record{
		ID: e.GetId(), CreatedAt: time.Now().UTC(), Event: event, Seq: seq, SeqEpoch: epoch,
		Node: record.NodeIdentity{
			UID: uid, ProviderID: node.Spec.ProviderID, SystemUUID: node.Status.NodeInfo.SystemUUID, BootID: node.Status.NodeInfo.BootID,
		},
	}
}
