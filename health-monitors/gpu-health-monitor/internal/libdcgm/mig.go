//go:build cgo

package libdcgm

import (
	"maps"
	"slices"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// instances are the MIG instances: DCGM files an XID that struck one under it, and neither
// under its GPU nor in the health check.
type instances struct {
	group dcgm.GroupHandle
	gpus  map[reading.Entity]uint // their GPUs
	// watched are those of which DCGM refused nothing.
	watched []reading.Entity
}

// hierarchy are the GPUs of the MIG instances; none where DCGM does not report them.
func hierarchy() map[reading.Entity]uint {
	all, err := dcgm.GetGPUInstanceHierarchy()
	if err != nil {
		return nil
	}
	parents := map[reading.Entity]reading.Entity{}
	for _, x := range all.EntityList[:all.Count] {
		parents[entity(x.Entity)] = entity(x.Parent)
	}
	gpus := map[reading.Entity]uint{}
	for x, parent := range parents {
		if parent.Kind == reading.GPUInstance {
			parent = parents[parent]
		}
		if parent.Kind == reading.GPU {
			gpus[x] = parent.ID
		}
	}
	return gpus
}

func entity(x dcgm.GroupEntityPair) reading.Entity {
	return reading.Entity{Kind: reading.Kind(x.EntityGroupId), ID: x.EntityId}
}

// watchInstances watches the XIDs of MIG instances, as far as DCGM lets it: what it refuses
// is reported, and hides nothing else.
func (c *connection) watchInstances() error {
	gpus := hierarchy()
	if c.members == 0 || len(gpus) == 0 {
		return nil
	}
	group, err := dcgm.CreateGroup(c.name + "-mig")
	if err != nil {
		return err
	}
	c.mig = instances{group: group, gpus: gpus}
	for _, x := range slices.SortedFunc(maps.Keys(gpus), reading.Entity.Compare) {
		if err := dcgm.AddEntityToGroup(group, dcgm.Field_Entity_Group(x.Kind), x.ID); err != nil {
			c.refused = append(c.refused, refusals(err, x)...)
			continue
		}
		c.mig.watched = append(c.mig.watched, x)
	}
	// DCGM does not report for which instances of a group it refuses the watch.
	if err := dcgm.WatchFieldsWithGroupEx(c.xids, group, pace.Microseconds(), sampleRetention.Seconds(), 0); err != nil {
		c.refused = append(c.refused, refusals(err, c.mig.watched...)...)
		c.mig.watched = nil
	}
	return nil
}
