package bench

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// checkName is the check under which the figures' faults are reported.
const checkName = "SysLogsXIDError"

// pen writes events as one node monitor after the other would, each node with
// its own counter.
type pen struct {
	epoch string
	seq   atomic.Uint64
}

func newPen() *pen { return &pen{epoch: uuid.NewString()} }

// fault is an XID on one GPU of a node.
func (p *pen) fault(node string, gpu int, xid string, action protos.RecommendedAction) *protos.HealthEvent {
	e := p.event(node, gpu)
	e.IsFatal, e.ErrorCode, e.RecommendedAction = true, []string{xid}, action
	e.Message = fmt.Sprintf("NVRM: Xid (PCI:%s): %s, pid=%s, name=<unknown>, the GPU reported an error",
		fleet.PCI(gpu), xid, e.Metadata[record.MetadataSeq]) // no repeat of another: connectors would count it
	return e
}

// recovery clears what the check reported of one GPU.
func (p *pen) recovery(node string, gpu int) *protos.HealthEvent {
	e := p.event(node, gpu)
	e.IsHealthy, e.Message = true, record.HealthyMessage
	return e
}

func (p *pen) event(node string, gpu int) *protos.HealthEvent {
	return &protos.HealthEvent{
		Version: 1, Id: uuid.Must(uuid.NewV7()).String(), Agent: fleet.Monitor, ComponentClass: "GPU",
		CheckName: checkName, NodeName: node, GeneratedTimestamp: timestamppb.Now(),
		EntitiesImpacted: []*protos.Entity{
			{EntityType: "PCI", EntityValue: fleet.PCI(gpu)},
			{EntityType: "GPU_UUID", EntityValue: fleet.UUID(node, gpu)},
		},
		Metadata: map[string]string{
			record.MetadataSeq: strconv.FormatUint(p.seq.Add(1), 10), record.MetadataSeqEpoch: p.epoch, record.MetadataSeqRuns: "bench",
		},
	}
}

// stored is an event as the connector of its node would store it.
func stored(e *protos.HealthEvent, node *corev1.Node) record.Record {
	event := record.FromProto(e)
	seq, epoch, _ := event.Seq()
	info := node.Status.NodeInfo
	return record.Record{
		ID: e.GetId(), CreatedAt: time.Now().UTC(), Event: event, Seq: seq, SeqEpoch: epoch,
		Node: record.NodeIdentity{
			UID: string(node.UID), ProviderID: node.Spec.ProviderID, SystemUUID: info.SystemUUID, BootID: info.BootID,
		},
	}
}
