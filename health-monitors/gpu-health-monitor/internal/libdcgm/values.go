//go:build cgo

package libdcgm

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// latest reads the newest values. A value counts only if its own status is 0 and it
// is not blank.
func (c *connection) latest(r *reading.Reading) error {
	var pairs []dcgm.GroupEntityPair
	at := map[uint]*reading.Device{}
	for i, gpu := range c.gpus {
		if _, left := c.left[gpu]; !left {
			pairs = append(pairs, dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_GPU, EntityId: gpu})
			at[gpu] = &r.Devices[i]
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	values, err := dcgm.EntitiesGetLatestValues(pairs, c.values, 0)
	if err != nil {
		return err
	}
	for i := range values {
		if d := at[values[i].EntityID]; d != nil && values[i].Status == 0 {
			take(d, &values[i])
		}
	}
	return nil
}

func take(d *reading.Device, v *dcgm.FieldValue_v2) {
	if !readable(v) {
		return
	}
	if d.Samples == nil {
		d.Samples = map[reading.Field]int64{}
	}
	field := reading.Field(v.FieldID)
	d.Samples[field] = v.TS
	switch n := integer(v); field {
	case reading.FieldUUID:
		d.UUID = text(v)
	case reading.FieldPCI:
		d.PCI = text(v)
	case reading.FieldMargin:
		d.Margin = &n
	case reading.FieldPending:
		pending := n != 0
		d.RemapPending = &pending
	case reading.FieldRecoveryAction:
		d.Recovery = &n
	}
}

// readable reports whether a value could be read: DCGM has blank values for those that cannot.
func readable(v *dcgm.FieldValue_v2) bool {
	switch v.FieldType {
	case dcgm.DCGM_FT_INT64:
		return integer(v) < blank
	case dcgm.DCGM_FT_DOUBLE:
		return math.Float64frombits(binary.NativeEndian.Uint64(v.Value[:8])) < dcgm.DCGM_FT_FP64_BLANK
	case dcgm.DCGM_FT_STRING:
		return text(v) != ""
	}
	return false
}

// text is a string's value; DCGM writes <<<NULL>>> for one that it does not know.
func text(v *dcgm.FieldValue_v2) string {
	if v.StringValue == nil || strings.HasPrefix(*v.StringValue, "<<<") {
		return ""
	}
	return *v.StringValue
}

func integer(v *dcgm.FieldValue_v2) int64 {
	return int64(binary.NativeEndian.Uint64(v.Value[:8]))
}

// samples reads the XIDs since a time, of GPUs and of MIG instances. An entity without any
// has a placeholder with a status of its own.
func (c *connection) samples(since time.Time, r *reading.Reading) error {
	values, next, err := dcgm.GetValuesSince(c.group, c.xids, since)
	if err != nil {
		return err
	}
	r.Next = next.UnixMicro()
	r.XIDs = c.numbers(values)
	if len(c.mig.gpus) > 0 {
		c.samplesOfInstances(since, r)
	}
	return nil
}

// samplesOfInstances reads the XIDs of MIG instances. Without them, the others count.
func (c *connection) samplesOfInstances(since time.Time, r *reading.Reading) {
	values, _, err := dcgm.GetValuesSince(c.mig.group, c.xids, since)
	if err != nil {
		r.Refusals = slices.Concat(r.Refusals, refusals(err, c.mig.watched...))
		return
	}
	r.XIDs = append(r.XIDs, c.numbers(values)...)
}

// numbers are the XIDs among values of their field.
func (c *connection) numbers(values []dcgm.FieldValue_v2) (xids []reading.XID) {
	for i := range values {
		v := &values[i]
		n := integer(v)
		if v.Status != 0 || v.FieldID != fieldXID || !readable(v) || n <= 0 {
			continue
		}
		x := reading.XID{Entity: reading.Entity{Kind: reading.Kind(v.EntityGroupId), ID: v.EntityID}, Number: n, At: v.TS}
		if gpu, ok := c.mig.gpus[x.Entity]; ok {
			x.GPU = &gpu
		}
		xids = append(xids, x)
	}
	return xids
}
