package check

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// metadataChassis is the chassis serial of the node's metadata file.
const metadataChassis = "chassis_serial"

// event is the frame of an event about a fault.
func (d *deciding) event(f Fault) *protos.HealthEvent {
	boot := d.v.Boot
	if boot == "" {
		boot = d.State.Boot
	}
	e := &protos.HealthEvent{
		Version: 1, Agent: Agent, ComponentClass: "GPU", CheckName: f.Check, NodeName: d.p.Node, ErrorCode: []string{f.Code},
		GeneratedTimestamp: timestamppb.New(d.v.Now), Metadata: map[string]string{record.MetadataBootID: boot},
	}
	for _, n := range f.Names {
		e.EntitiesImpacted = append(e.EntitiesImpacted, &protos.Entity{EntityType: n[0], EntityValue: n[1]})
	}
	if d.v.Inventory.Chassis != "" {
		e.Metadata[metadataChassis] = d.v.Inventory.Chassis
	}
	return e
}

// names are those of a GPU: as DCGM reports them, else as the metadata file does.
func (d *deciding) names(e reading.Entity) Names {
	if e.Kind == reading.Link {
		e, _ = e.Link()
	}
	if e.Kind != reading.GPU {
		return Names{}
	}
	if gpu, ok := d.State.described(e.ID, d.v.Inventory); ok {
		return Names{gpu.UUID, gpu.PCI} // the file's spelling is what other monitors use
	}
	return d.State.Devices[e.ID]
}

// namesOf are the entities of a fault; one of the node's DCGM itself has none.
func (d *deciding) namesOf(x finding) [][2]string {
	if x.check == Connectivity || x.check == Unresponsive {
		return nil
	}
	if x.parent != nil {
		return append(d.entities(*x.parent), d.entities(x.entity)...)
	}
	return d.entities(x.entity)
}

// entities name what a fault is about. Something is always named: a recovery that
// names nothing would end the faults of every entity.
func (d *deciding) entities(e reading.Entity) [][2]string {
	switch e.Kind {
	case reading.GPU:
		out, n := [][2]string{{"GPU", number(e.ID)}}, d.names(e)
		if n.PCI != "" {
			out = append(out, [2]string{"PCI", n.PCI})
		}
		if n.UUID != "" {
			out = append(out, [2]string{"GPU_UUID", n.UUID})
		}
		return out
	case reading.Link:
		parent, index := e.Link()
		return append(d.entities(parent), [2]string{"NVLINK", number(index)})
	case reading.Switch:
		return [][2]string{{"NVSWITCH", number(e.ID)}}
	case reading.GPUInstance:
		return [][2]string{{"GPU_INSTANCE", number(e.ID)}}
	case reading.ComputeInstance:
		return [][2]string{{"COMPUTE_INSTANCE", number(e.ID)}}
	case reading.NoEntity, reading.VGPU, reading.CPU, reading.CPUCore, reading.ConnectX:
	}
	return [][2]string{{"DCGM_ENTITY", fmt.Sprintf("%d:%d", e.Kind, e.ID)}}
}

// unambiguous are the names of a fault without the number and the address of its GPU,
// where another GPU bears them: any name of a device ends its fault.
func (d *deciding) unambiguous(f Fault, why Reason) [][2]string {
	if !slices.ContainsFunc(f.Names, func(n [2]string) bool { return n[0] == "GPU_UUID" }) {
		return f.Names
	}
	return slices.DeleteFunc(slices.Clone(f.Names), func(n [2]string) bool {
		return (n[0] == "GPU" || n[0] == "PCI") && (why == Replaced || d.shared(f, n))
	})
}

// shared reports whether the same fault of another GPU is reported with a name.
func (d *deciding) shared(f Fault, name [2]string) bool {
	for _, other := range d.State.Faults {
		if other.Check == f.Check && other.Code == f.Code && other.Of != f.Of && slices.Contains(other.Names, name) {
			return true
		}
	}
	return false
}
