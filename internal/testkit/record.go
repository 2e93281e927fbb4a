package testkit

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Builder makes a stored record step by step; every step returns a changed
// copy, so that one builder can be the start of several records.
type Builder struct{ r record.Record }

// Fault begins a fatal GPU fault of the syslog monitor on node "node-1" that
// is to be processed and asks for a reboot.
func Fault(id string) Builder {
	return Builder{record.Record{
		ID: id, CreatedAt: Start, Revision: 1,
		Event: record.Event{
			Version: 1, ID: id, Agent: "syslog-health-monitor", ComponentClass: "GPU",
			CheckName: "SysLogsXIDError", NodeName: "node-1", IsFatal: true, Message: "fault of a test",
			RecommendedAction: record.ActionRestartVM, ProcessingStrategy: record.Process,
			GeneratedTimestamp: Start,
		},
	}}
}

// Recovery begins a healthy event of the same check.
func Recovery(id string) Builder {
	b := Fault(id)
	b.r.Event.IsFatal, b.r.Event.IsHealthy = false, true
	b.r.Event.RecommendedAction, b.r.Event.Message = record.ActionNone, record.HealthyMessage
	return b
}

// Node names the node.
func (b Builder) Node(name string) Builder { b.r.Event.NodeName = name; return b }

// Code gives the error codes.
func (b Builder) Code(codes ...string) Builder { b.r.Event.ErrorCode = codes; return b }

// Entity adds an entity, for example GPU_UUID.
func (b Builder) Entity(kind, value string) Builder {
	have := b.r.Event.EntitiesImpacted
	b.r.Event.EntitiesImpacted = append(slices.Clip(have), record.Entity{EntityType: kind, EntityValue: value})
	return b
}

// GPU adds a GPU by its uuid.
func (b Builder) GPU(uuid string) Builder { return b.Entity("GPU_UUID", uuid) }

// Action is the recommended action.
func (b Builder) Action(a record.Action) Builder { b.r.Event.RecommendedAction = a; return b }

// NotFatal makes it a fault that is not fatal.
func (b Builder) NotFatal() Builder { b.r.Event.IsFatal = false; return b }

// PersistOnly keeps it from changing the cluster.
func (b Builder) PersistOnly() Builder {
	b.r.Event.ProcessingStrategy = record.PersistOnly
	return b
}

// Boot is the boot under which the monitor saw it.
func (b Builder) Boot(id string) Builder { return b.Metadata(record.MetadataBootID, id) }

// Seq is the publisher's counter within an epoch, all in one run.
func (b Builder) Seq(epoch string, n uint64) Builder {
	b.r.Seq, b.r.SeqEpoch = n, epoch
	return b.Metadata(record.MetadataSeq, strconv.FormatUint(n, 10)).Metadata(record.MetadataSeqEpoch, epoch).Metadata(record.MetadataSeqRuns, "run")
}

// Metadata sets one entry of the event's metadata.
func (b Builder) Metadata(key, value string) Builder {
	m := maps.Clone(b.r.Event.Metadata)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	b.r.Event.Metadata = m
	return b
}

// At is when it was seen and stored.
func (b Builder) At(t time.Time) Builder {
	b.r.CreatedAt, b.r.Event.GeneratedTimestamp = t, t
	return b
}

// Status is what has been decided about it.
func (b Builder) Status(s record.Status) Builder { b.r.Status = s; return b }

// Record is the stored record.
func (b Builder) Record() record.Record { return b.r }

// Event is the event as the connector accepted it.
func (b Builder) Event() record.Event { return b.r.Event }

// Proto is the event as it comes over the wire.
func (b Builder) Proto() *protos.HealthEvent { return record.ToProto(b.r.Event) }
