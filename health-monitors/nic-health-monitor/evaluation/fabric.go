package evaluation

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Names on the wire.
const (
	Agent          = "nic-health-monitor"
	ComponentClass = "NIC"
	// EntityNIC is a card by its name, EntityPort a port of it by its number.
	EntityNIC  = "NIC"
	EntityPort = "NICPort"
)

// Layer is the link layer of a port.
type Layer string

// Link layers, as sysfs names them.
const (
	InfiniBand Layer = "InfiniBand"
	Ethernet   Layer = "Ethernet"
)

// CharDeviceCheck is the check of the character devices of InfiniBand. StateCheck and
// DegradationCheck return the checks of a layer.
const CharDeviceCheck = "InfiniBandCharDeviceCheck"

// StateCheck is the check of the state of links and cards of a layer.
func StateCheck(l Layer) string { return string(l) + "StateCheck" }

// DegradationCheck is the check of the error counters of a layer.
func DegradationCheck(l Layer) string { return string(l) + "DegradationCheck" }

// Checks lists the checks of this monitor.
func Checks() []string {
	return []string{
		StateCheck(InfiniBand), StateCheck(Ethernet), CharDeviceCheck, DegradationCheck(InfiniBand), DegradationCheck(Ethernet),
	}
}

// State is what a port reports about its link.
type State string

// States of a port.
const (
	// Active: the link carries traffic.
	Active State = "active"
	// Down: there is no link.
	Down State = "down"
	// Disabled: the port is switched off.
	Disabled State = "disabled"
	// Between: the link is there and waits, for example for a subnet manager; that
	// is neither health nor a fault of the card.
	Between State = "between"
	// Unreadable: nothing follows.
	Unreadable State = "unreadable"
)

// Port is one port of a card.
type Port struct {
	// Number is the port's number, decimal, from 1.
	Number string
	Layer  Layer
	State  State
	// Counters holds the counters that could be read, by name.
	Counters map[string]uint64
}

// Device is one network card.
type Device struct {
	// Name is what the kernel calls it now, "mlx5_0"; it may be another after a boot.
	Name string
	// Location is its PCI address, or its name where it has none.
	Location string
	// Driver is the name of its driver, empty when it has none or it is not known.
	Driver string
	// GUID distinguishes a card from its replacement; empty when it could not be read.
	GUID string
	// Model groups cards that have the same role.
	Model string
	// CharDevice: programs can open it.
	CharDevice bool
	Ports      []Port
}

// Layer is that of the card's first port.
func (d Device) Layer() Layer {
	if len(d.Ports) > 0 && d.Ports[0].Layer == InfiniBand {
		return InfiniBand
	}
	return Ethernet
}

// ActivePorts counts the active ports; known is false if a port's state is not known.
func (d Device) ActivePorts() (count int, known bool) {
	known = true
	for _, p := range d.Ports {
		switch p.State {
		case Active:
			count++
		case Between, Unreadable:
			known = false
		case Down, Disabled:
		}
	}
	return count, known
}

// Reading is the result of one read of sysfs.
type Reading struct {
	At time.Time
	// Boot is the id of the running boot.
	Boot string
	// Devices are all cards that are there and watched, by name.
	Devices []Device
	// Unwatched are the places of cards that are there and not watched.
	Unwatched []string
	// Drivers are those of all cards that are there, watched or not.
	Drivers map[string]bool
	// CharDevices: the character devices could be listed.
	CharDevices bool
}

// Card returns the card at a location.
func (r Reading) Card(location string) (Device, bool) {
	for _, d := range r.Devices {
		if d.Location == location {
			return d, true
		}
	}
	return Device{}, false
}

// MetadataLocation is the PCI address of the card.
const MetadataLocation = "pci"

// Event returns the health event of the report about a node at a time. A fault and its end
// name the same entities and code.
func (r Report) Event(node, boot string, at time.Time) *protos.HealthEvent {
	e := &protos.HealthEvent{
		Version: 1, Agent: Agent, ComponentClass: ComponentClass, CheckName: r.Key.Check, NodeName: node,
		IsFatal: r.Fatal, IsHealthy: r.Healthy, Message: r.Message, RecommendedAction: record.ActionNumber(r.Action),
		ErrorCode: []string{r.Key.Code}, GeneratedTimestamp: timestamppb.New(at), ProcessingStrategy: record.StrategyNumber(r.Strategy),
		EntitiesImpacted: []*protos.Entity{{EntityType: EntityNIC, EntityValue: r.Key.Device}},
		Metadata:         map[string]string{record.MetadataBootID: boot, MetadataLocation: r.Location},
	}
	if r.Key.Port != "" {
		e.EntitiesImpacted = append(e.EntitiesImpacted, &protos.Entity{EntityType: EntityPort, EntityValue: r.Key.Port})
	}
	return e
}
