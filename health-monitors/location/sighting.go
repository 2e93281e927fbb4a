// Package location holds what every check of the kernel log needs to report where, when and
// of which device something was seen, and makes the frame of its health events. It does no
// I/O and reads no clock.
package location

import (
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Names on the wire that all checks of the kernel log share.
const (
	Agent          = "syslog-health-monitor"
	ComponentClass = "GPU"
	// MetadataChassis is the chassis serial of the node's metadata file.
	MetadataChassis = "chassis_serial"
)

// Device is what is known about the GPU at a PCI address.
type Device struct {
	// PCI is the normalised address, empty when unknown.
	PCI string
	// UUID of the GPU, empty when unknown.
	UUID string
	// Index of the GPU in the metadata file, empty when the file does not list it.
	Index string
	// Listed means that the metadata file names the UUID; the driver's own lines are no
	// ground for a reset of one GPU.
	Listed bool
	// Chassis is the chassis serial of the node, empty when unknown.
	Chassis string
	// Driver is the version of the GPU driver, empty when unknown.
	Driver string
}

// Names are the entities that name the device.
func (d Device) Names() []*protos.Entity {
	return Entities([2]string{"PCI", d.PCI}, [2]string{"GPU_UUID", d.UUID}, [2]string{"GPU", d.Index})
}

// Action downgrades the reset of one GPU to a restart of the machine unless the metadata
// file shows which GPU it is.
func (d Device) Action(a record.Action) record.Action {
	if a == record.ActionComponentReset && !d.Listed {
		return record.ActionRestartVM
	}
	return a
}

// Sighting is where, when and by whom an event is reported.
type Sighting struct {
	Node     string
	Boot     string
	Strategy record.Strategy
	At       time.Time
}

// Event is the frame of an event of a check.
func (s Sighting) Event(check string) *protos.HealthEvent {
	return &protos.HealthEvent{
		Version: 1, Agent: Agent, ComponentClass: ComponentClass, CheckName: check, NodeName: s.Node,
		GeneratedTimestamp: timestamppb.New(s.At), ProcessingStrategy: record.StrategyNumber(s.Strategy),
		Metadata: map[string]string{record.MetadataBootID: s.Boot},
	}
}

// About is the frame of an event about a device; message is the raw line.
func (s Sighting) About(check string, d Device, message string) *protos.HealthEvent {
	e := s.Event(check)
	e.Message, e.EntitiesImpacted = message, d.Names()
	if d.Chassis != "" {
		e.Metadata[MetadataChassis] = d.Chassis
	}
	return e
}

// Healthy makes the event that clears every fault of a check after a reboot.
func (s Sighting) Healthy(check string) *protos.HealthEvent {
	e := s.Event(check)
	e.IsHealthy = true
	e.Message = record.HealthyMessage
	return e
}

// Entities makes entities of (type, value) pairs; a pair without value is left
// out.
func Entities(pairs ...[2]string) []*protos.Entity {
	var out []*protos.Entity
	for _, e := range pairs {
		if e[1] != "" {
			out = append(out, &protos.Entity{EntityType: e[0], EntityValue: e[1]})
		}
	}
	return out
}

var address = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?$`)

// Address normalises a PCI address to lower case, four digits of domain where
// they suffice, and no function: 00000000:3B:00.0 is 0000:3b:00. Anything that
// is not an address is only lowered, so that its fault is still reported.
func Address(s string) string {
	s = strings.ToLower(s)
	m := address.FindStringSubmatch(s)
	if m == nil {
		return s
	}
	domain := strings.TrimLeft(m[1], "0")
	return strings.Repeat("0", max(4-len(domain), 0)) + domain + ":" + m[2] + ":" + m[3]
}
