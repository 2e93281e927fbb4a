//go:build cgo

package libdcgm

import (
	"slices"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// watchSwitches watches the field of the NVSwitches that no health watch covers. Where DCGM
// refuses it, their faults are seen, and do not end under this boot.
func (c *connection) watchSwitches() error {
	if err := c.watchReset(); err != nil {
		c.refused = append(c.refused, refusals(err, c.entitiesOfSwitches()...)...)
	}
	return nil
}

func (c *connection) watchReset() error {
	if len(c.switches) == 0 {
		return nil
	}
	group, err := dcgm.CreateGroup(c.name + "-switches")
	if err != nil {
		return err
	}
	for _, id := range c.switches {
		if err := dcgm.AddEntityToGroup(group, dcgm.FE_SWITCH, id); err != nil {
			return err
		}
	}
	_, err = c.field(dcgm.Short(reading.FieldSwitchReset), group)
	return err
}

func (c *connection) entitiesOfSwitches() (out []reading.Entity) {
	for _, id := range c.switches {
		out = append(out, reading.Entity{Kind: reading.Switch, ID: id})
	}
	return out
}

// latestOfSwitches reads the newest samples of the fields of NVSwitches. Where DCGM refuses
// them, the rest counts: no fault of an NVSwitch ends.
func (c *connection) latestOfSwitches(r *reading.Reading) {
	if len(c.switches) == 0 {
		return
	}
	var pairs []dcgm.GroupEntityPair
	at := map[uint]*reading.NVSwitch{}
	for i, id := range c.switches {
		pairs = append(pairs, dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_SWITCH, EntityId: id})
		at[id] = &r.Switches[i]
	}
	var fields []dcgm.Short
	for _, field := range reading.SwitchFields() {
		fields = append(fields, dcgm.Short(field))
	}
	values, err := dcgm.EntitiesGetLatestValues(pairs, fields, 0)
	if err != nil {
		if !slices.ContainsFunc(c.refused, func(x reading.Refusal) bool { return x.Entity.Kind == reading.Switch }) {
			r.Refusals = slices.Concat(r.Refusals, refusals(err, c.entitiesOfSwitches()...))
		}
		return
	}
	for i := range values {
		v := &values[i]
		x := at[v.EntityID]
		if x == nil || v.Status != 0 {
			continue
		}
		if x.Samples == nil {
			x.Samples = map[reading.Field]reading.Sample{}
		}
		x.Samples[reading.Field(v.FieldID)] = reading.Sample{Value: integer(v), At: v.TS, Blank: !readable(v)}
	}
}

// refusals are those of a watch of some entities.
func refusals(err error, entities ...reading.Entity) (out []reading.Refusal) {
	for _, x := range entities {
		out = append(out, reading.Refusal{Entity: x, Text: err.Error()})
	}
	return out
}
