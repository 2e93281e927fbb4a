//go:build cgo

package libdcgm

import (
	"encoding/binary"
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
	if len(c.names) == 0 || len(pairs) == 0 {
		return nil
	}
	values, err := dcgm.EntitiesGetLatestValues(pairs, c.names, 0)
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
	switch n, ok := number(v); {
	case v.FieldID == fieldUUID:
		d.UUID = text(v)
	case v.FieldID == fieldPCI:
		d.PCI = text(v)
	case !ok:
	case v.FieldID == fieldMargin:
		d.Margin = &n
	case v.FieldID == fieldPending:
		pending := n != 0
		d.RemapPending = &pending
	}
}

// text is a string's value; DCGM writes <<<NULL>>> for one that it does not know.
func text(v *dcgm.FieldValue_v2) string {
	if v.StringValue == nil || strings.HasPrefix(*v.StringValue, "<<<") {
		return ""
	}
	return *v.StringValue
}

func number(v *dcgm.FieldValue_v2) (int64, bool) {
	if v.FieldType != dcgm.DCGM_FT_INT64 {
		return 0, false
	}
	n := int64(binary.NativeEndian.Uint64(v.Value[:8]))
	return n, n < blank
}

// samples reads the XIDs since a time. An entity without any has a placeholder with
// a status of its own.
func (c *connection) samples(since time.Time, r *reading.Reading) error {
	values, next, err := dcgm.GetValuesSince(c.group, c.xids, since)
	if err != nil {
		return err
	}
	r.Next = next.UnixMicro()
	for i := range values {
		v := &values[i]
		if n, ok := number(v); ok && v.Status == 0 && n > 0 && v.FieldID == fieldXID {
			r.XIDs = append(r.XIDs, reading.XID{
				Entity: reading.Entity{Kind: reading.Kind(v.EntityGroupId), ID: v.EntityID}, Number: n, At: v.TS,
			})
		}
	}
	return nil
}
