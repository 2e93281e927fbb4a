package xid

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Names of the XID check on the wire.
const (
	Agent          = "syslog-health-monitor"
	ComponentClass = "GPU"
	Check          = "SysLogsXIDError"
	// MetadataPolicy names the policy of a code that its bucket alone did not decide.
	MetadataPolicy = "xidPolicy"
	// MetadataChassis is the chassis serial of the node's metadata file.
	MetadataChassis = "chassis_serial"
)

// Device is what is known about the GPU at a PCI address.
type Device struct {
	// UUID of the GPU, empty when unknown.
	UUID string
	// Index of the GPU in the metadata file, empty when the file does not list it.
	Index string
	// Listed says that the metadata file names the UUID; the driver's own lines
	// are no ground for a reset of one GPU.
	Listed bool
	// Chassis is the chassis serial of the node, empty when unknown.
	Chassis string
}

// Sighting is where, when and by whom an event is reported.
type Sighting struct {
	Node     string
	Boot     string
	Strategy record.Strategy
	At       time.Time
}

// Event makes the health event of one reported XID; message is the raw line.
func Event(f Fault, d Device, s Sighting, message string) *protos.HealthEvent {
	j := Judge(f)
	e := frame(s)
	e.Message = message
	e.IsFatal = j.Fatal
	e.RecommendedAction = record.ActionNumber(action(j, d))
	e.ErrorCode = []string{f.Number}
	e.EntitiesImpacted = entities(f, d)
	if j.Policy != ByBucket {
		e.Metadata[MetadataPolicy] = string(j.Policy)
	}
	if d.Chassis != "" {
		e.Metadata[MetadataChassis] = d.Chassis
	}
	return e
}

// Healthy makes the event that clears every fault of the check after a reboot.
func Healthy(s Sighting) *protos.HealthEvent {
	e := frame(s)
	e.IsHealthy = true
	e.Message = "No Health Failures"
	return e
}

func frame(s Sighting) *protos.HealthEvent {
	return &protos.HealthEvent{
		Version: 1, Agent: Agent, ComponentClass: ComponentClass, CheckName: Check, NodeName: s.Node,
		GeneratedTimestamp: timestamppb.New(s.At), ProcessingStrategy: record.StrategyNumber(s.Strategy),
		Metadata: map[string]string{record.MetadataBootID: s.Boot},
	}
}

// action downgrades the reset of one GPU to a restart of the machine unless the
// metadata file says which GPU it is.
func action(j Judgement, d Device) record.Action {
	if j.Action == record.ActionComponentReset && !d.Listed {
		return record.ActionRestartVM
	}
	return j.Action
}

func entities(f Fault, d Device) []*protos.Entity {
	var out []*protos.Entity
	for _, e := range [][2]string{
		{"PCI", f.PCI}, {"GPU_UUID", d.UUID}, {"GPU", d.Index},
		{"GPC", f.GPC}, {"TPC", f.TPC}, {"SM", f.SM}, {"NVLINK", f.Link},
	} {
		if e[1] != "" {
			out = append(out, &protos.Entity{EntityType: e[0], EntityValue: e[1]})
		}
	}
	return out
}
