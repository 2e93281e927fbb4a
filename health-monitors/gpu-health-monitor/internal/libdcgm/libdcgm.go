//go:build cgo

package libdcgm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/worker"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// ErrMissing says why this binary cannot talk to DCGM; nil where it can.
var ErrMissing error

// Fields that are watched beside the health systems.
const (
	fieldUUID    dcgm.Short = 54
	fieldPCI     dcgm.Short = 57
	fieldMargin  dcgm.Short = 153
	fieldXID     dcgm.Short = 230
	fieldPending dcgm.Short = 396
)

// kept is how long DCGM keeps the samples of watched fields, and pace how often it
// takes them: no slower than it does for health.
const (
	kept = time.Hour
	pace = 30 * time.Second
)

// blank is where DCGM's values begin that mean "cannot be read".
const blank = 0x7ffffffffffffff0

// connection is the one connection of this process.
type connection struct {
	steps    worker.Steps
	engine   string
	gpus     []uint
	switches []uint
	group    dcgm.GroupHandle
	xids     dcgm.FieldHandle
	names    []dcgm.Short // the fields whose newest value is read
}

// New prepares the one connection of this process.
func New() (worker.Library, error) { return &connection{}, nil }

// Connect connects and watches. What Init says is not believed (it returns nil with
// a dead connection after a hung login) before a checked call has answered.
func (c *connection) Connect(target worker.Target, steps worker.Steps) error {
	c.steps = steps
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"Init", func() error { return open(target) }},
		{"GetHostengineVersionInfo", c.version},
		{"GetEntityGroupEntities", c.list},
		{"CreateGroup", c.gather},
		{"HealthSet", func() error { return dcgm.HealthSet(c.group, dcgm.DCGM_HEALTH_WATCH_ALL) }},
		{"WatchFields", c.watch},
	} {
		if err := steps.Do(step.name, step.do); err != nil {
			return err
		}
	}
	return nil
}

func open(target worker.Target) error {
	var err error
	switch address := target.Address; {
	case target.Embedded:
		_, err = dcgm.Init(dcgm.Embedded)
	case strings.HasPrefix(address, "unix://"):
		_, err = dcgm.Init(dcgm.Standalone, strings.TrimPrefix(address, "unix://"), "1")
	default:
		_, err = dcgm.Init(dcgm.Standalone, strings.TrimPrefix(address, "tcp://"), "0")
	}
	return err
}

func (c *connection) version() error {
	v, err := dcgm.GetHostengineVersionInfo()
	for part := range strings.SplitSeq(v.RawBuildInfoString, ";") {
		if version, ok := strings.CutPrefix(part, "version:"); ok {
			c.engine = version
		}
	}
	return err
}

// errNone: without a driver the host engine runs and knows no GPU.
var errNone = errors.New("the host engine knows no GPU")

func (c *connection) list() error {
	gpus, err := dcgm.GetEntityGroupEntities(dcgm.FE_GPU)
	if err == nil && len(gpus) == 0 {
		return errNone
	}
	c.gpus, c.switches = gpus, switches()
	return err
}

// switches are the NVSwitches that can be watched: none as long as their module in the
// host engine is not up.
func switches() []uint {
	ids, err := dcgm.GetEntityGroupEntities(dcgm.FE_SWITCH)
	if err != nil {
		return nil
	}
	slices.Sort(ids)
	return ids
}

// errChanged: watches cover what their group held when they began.
var errChanged = errors.New("the host engine knows other GPUs or NVSwitches than before: it is watched anew")

func (c *connection) same() error {
	gpus, err := dcgm.GetEntityGroupEntities(dcgm.FE_GPU)
	if err == nil && (!slices.Equal(gpus, c.gpus) || !slices.Equal(switches(), c.switches)) {
		return errChanged
	}
	return err
}

// gather makes a group of the GPUs and switches: a watch covers what is in its group
// at that moment.
func (c *connection) gather() error {
	group, err := dcgm.CreateGroup(fmt.Sprintf("nvsentinel-%d", os.Getpid()))
	if err != nil {
		return err
	}
	c.group = group
	for _, gpu := range c.gpus {
		if err := dcgm.AddEntityToGroup(group, dcgm.FE_GPU, gpu); err != nil {
			return err
		}
	}
	for _, id := range c.switches {
		if err := dcgm.AddEntityToGroup(group, dcgm.FE_SWITCH, id); err != nil {
			return err
		}
	}
	return nil
}

// watch watches the fields. Those that an older host engine does not know are left
// out, so that it still tells the others.
func (c *connection) watch() error {
	var err error
	if c.xids, err = c.field(fieldXID); err != nil {
		return err
	}
	for _, id := range []dcgm.Short{fieldUUID, fieldPCI, fieldMargin, fieldPending} {
		if _, err := c.field(id); err == nil {
			c.names = append(c.names, id)
		}
	}
	return nil
}

func (c *connection) field(id dcgm.Short) (dcgm.FieldHandle, error) {
	fields, err := dcgm.FieldGroupCreate(fmt.Sprintf("nvsentinel-%d-%d", os.Getpid(), id), []dcgm.Short{id})
	if err != nil {
		return fields, err
	}
	return fields, dcgm.WatchFieldsWithGroupEx(fields, c.group, pace.Microseconds(), kept.Seconds(), 0)
}

// errUnwatched: a group without health watches passes whatever its GPUs have.
var errUnwatched = errors.New("the host engine watches nothing: it was started again or its watches were taken away")

// Poll takes one look.
func (c *connection) Poll(since time.Time) (reading.Reading, error) {
	r := reading.Reading{Engine: c.engine, Switches: c.switches}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"HealthGet", func() error {
			systems, err := dcgm.HealthGet(c.group)
			if err == nil && systems == 0 {
				return errUnwatched
			}
			return err
		}},
		{"GetEntityGroupEntities", c.same},
		{"HealthCheck", func() error { return health(c.group, &r) }},
		{"GetGPUStatus", func() error { return c.statuses(&r) }},
		{"EntitiesGetLatestValues", func() error { return c.latest(&r) }},
		{"GetValuesSince", func() error { return c.samples(since, &r) }},
	} {
		if err := c.steps.Do(step.name, step.do); err != nil {
			return reading.Reading{}, err
		}
	}
	return r, nil
}

func health(group dcgm.GroupHandle, r *reading.Reading) error {
	response, err := dcgm.HealthCheck(group)
	for _, x := range response.Incidents {
		r.Incidents = append(r.Incidents, reading.Incident{
			System: uint32(x.System), Health: reading.Health(x.Health), Code: uint(x.Error.Code), Text: x.Error.Message,
			Entity: reading.Entity{Kind: reading.Kind(x.EntityInfo.EntityGroupId), ID: x.EntityInfo.EntityId},
		})
	}
	return err
}

// statuses asks for each GPU's; an error looks like Unknown, which is never good.
func (c *connection) statuses(r *reading.Reading) error {
	for _, gpu := range c.gpus {
		r.Devices = append(r.Devices, reading.Device{ID: gpu, Status: reading.Status(dcgm.GetGPUStatus(gpu))})
	}
	return nil
}

// latest reads the newest values. A value counts only if its own status is 0 and it
// is not blank.
func (c *connection) latest(r *reading.Reading) error {
	if len(c.names) == 0 {
		return nil
	}
	var pairs []dcgm.GroupEntityPair
	at := map[uint]*reading.Device{}
	for i, gpu := range c.gpus {
		pairs = append(pairs, dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_GPU, EntityId: gpu})
		at[gpu] = &r.Devices[i]
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
