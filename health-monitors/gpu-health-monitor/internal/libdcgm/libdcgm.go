//go:build cgo

package libdcgm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/worker"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// ErrMissing is why this binary cannot talk to DCGM; nil where it can.
var ErrMissing error

const fieldXID dcgm.Short = 230

// sampleRetention is how long DCGM keeps the samples of watched fields, and pace how often it
// takes them: no slower than it does for health.
const (
	sampleRetention = time.Hour
	pace            = 30 * time.Second
)

// blank is where DCGM's values begin that mean "cannot be read".
const blank = 0x7ffffffffffffff0

// connection is the one connection of this process.
type connection struct {
	steps    worker.Steps
	name     string // begins the names of its groups
	engine   string
	gpus     []uint
	switches []uint
	group    dcgm.GroupHandle
	members  int           // how many GPUs and switches the group holds
	left     map[uint]bool // the GPUs that it could not take, and whether they were good when asked last
	xids     dcgm.FieldHandle
	values   []dcgm.Short // the fields whose newest value is read
	mig      instances
	refused  []reading.Refusal
}

// New prepares the one connection of this process. A host engine refuses the name of a
// field group twice, and the ids of processes in two containers may be the same.
func New() (worker.Library, error) { return &connection{name: "nvsentinel-" + rand.Text()}, nil }

// Connect connects and watches. The result of Init is not trusted (it returns nil with a
// dead connection after a hung login) before a checked call has answered.
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
		{"HealthSet", c.watchHealth},
		{"WatchFields", c.watch},
		{"WatchFields", c.watchSwitches},
		{"GetGpuInstanceHierarchy", c.watchInstances},
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
var errNone = errors.New("the host engine lists no GPU")

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
var errChanged = errors.New("the host engine lists other GPUs, MIG instances or NVSwitches than before, so its watches are created again")

func (c *connection) same() error {
	gpus, err := dcgm.GetEntityGroupEntities(dcgm.FE_GPU)
	if err == nil && (!slices.Equal(gpus, c.gpus) || !slices.Equal(switches(), c.switches) || !maps.Equal(hierarchy(), c.mig.gpus)) {
		return errChanged
	}
	return err
}

// gather makes a group of the GPUs and switches: a watch covers what is in its group
// at that moment. The host engine lists GPUs that are lost, disabled or detached, and
// refuses to add them: they are left out, so that the others are watched. Where the
// connection itself is gone, the next call fails.
func (c *connection) gather() error {
	group, err := dcgm.CreateGroup(c.name)
	if err != nil {
		return err
	}
	c.group, c.left, c.refused = group, map[uint]bool{}, nil
	for _, gpu := range c.gpus {
		before := status(gpu)
		if err := dcgm.AddEntityToGroup(group, dcgm.FE_GPU, gpu); err != nil {
			c.left[gpu] = before.Good() && status(gpu).Good()
			c.refused = append(c.refused, refusals(err, reading.Entity{Kind: reading.GPU, ID: gpu})...)
		}
	}
	for _, id := range c.switches {
		if err := dcgm.AddEntityToGroup(group, dcgm.FE_SWITCH, id); err != nil {
			return err
		}
	}
	c.members = len(c.gpus) - len(c.left) + len(c.switches)
	return nil
}

func status(gpu uint) reading.Status { return reading.Status(dcgm.GetGPUStatus(gpu)) }

func (c *connection) watchHealth() error {
	if c.members == 0 {
		return nil
	}
	return dcgm.HealthSet(c.group, dcgm.DCGM_HEALTH_WATCH_ALL)
}

// watch watches the fields. Those that an older host engine does not know are left
// out, so that it still reports the others.
func (c *connection) watch() error {
	if c.members == 0 {
		return nil
	}
	var err error
	if c.xids, err = c.field(fieldXID, c.group); err != nil {
		return err
	}
	if _, err = c.field(dcgm.Short(reading.FieldUUID), c.group); err != nil {
		return err
	}
	c.values = []dcgm.Short{dcgm.Short(reading.FieldUUID)}
	for _, id := range []reading.Field{reading.FieldPCI, reading.FieldMargin, reading.FieldPending} {
		if _, err := c.field(dcgm.Short(id), c.group); err == nil {
			c.values = append(c.values, dcgm.Short(id))
		}
	}
	c.deciding()
	return nil
}

// deciding adds the fields by which the health check decides, which its watches cover.
// Each is asked for alone first: one that the host engine does not know must not have the
// others fail.
func (c *connection) deciding() {
	i := slices.IndexFunc(c.gpus, func(gpu uint) bool { _, left := c.left[gpu]; return !left })
	if i < 0 {
		return
	}
	one := []dcgm.GroupEntityPair{{EntityGroupId: dcgm.FE_GPU, EntityId: c.gpus[i]}}
	for _, field := range reading.DecidingFields() {
		if id := dcgm.Short(field); !slices.Contains(c.values, id) {
			if _, err := dcgm.EntitiesGetLatestValues(one, []dcgm.Short{id}, 0); err == nil {
				c.values = append(c.values, id)
			}
		}
	}
}

// field watches a field of what a group holds.
func (c *connection) field(id dcgm.Short, group dcgm.GroupHandle) (dcgm.FieldHandle, error) {
	fields, err := dcgm.FieldGroupCreate(fmt.Sprintf("%s-%d", c.name, id), []dcgm.Short{id})
	if err != nil {
		return fields, err
	}
	return fields, dcgm.WatchFieldsWithGroupEx(fields, group, pace.Microseconds(), sampleRetention.Seconds(), 0)
}

// errUnwatched: a group without health watches passes whatever its GPUs have.
var errUnwatched = errors.New("the host engine watches nothing because it was restarted or its watches were removed")

// step is one call of a poll.
type step struct {
	name string
	do   func() error
}

// Poll takes one look. While the group is empty, the status of the GPUs is all there is.
func (c *connection) Poll(since time.Time) (reading.Reading, error) {
	r := reading.Reading{Engine: c.engine, Refusals: c.refused}
	for _, id := range c.switches {
		r.Switches = append(r.Switches, reading.NVSwitch{ID: id})
	}
	steps := []step{
		{"GetEntityGroupEntities", c.same},
		{"GetGPUStatus", func() error { return c.statuses(&r) }},
	}
	if c.members > 0 {
		steps = slices.Concat([]step{{"HealthGet", c.unwatched}}, steps, []step{
			{"HealthCheck", func() error { return health(c.group, &r) }},
			{"EntitiesGetLatestValues", func() error { return c.latest(&r) }},
			{"EntitiesGetLatestValues", func() error { c.latestOfSwitches(&r); return nil }},
			{"GetValuesSince", func() error { return c.samples(since, &r) }},
		})
	}
	for _, step := range steps {
		if err := c.steps.Do(step.name, step.do); err != nil {
			return reading.Reading{}, err
		}
	}
	return r, nil
}

func (c *connection) unwatched() error {
	systems, err := dcgm.HealthGet(c.group)
	if err == nil && systems == 0 {
		return errUnwatched
	}
	return err
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

// errReturned: a GPU that no watch covers is there again.
var errReturned = errors.New("a GPU that could not be watched is available again, so the watches are created again")

// statuses asks for each GPU's; an error looks like Unknown, which is never good. A GPU
// that was left out is watched by another connection once it is good.
func (c *connection) statuses(r *reading.Reading) error {
	for _, gpu := range c.gpus {
		d := reading.Device{ID: gpu, Status: status(gpu)}
		if was, left := c.left[gpu]; left {
			if d.Status.Good() && !was {
				return errReturned
			}
			d.Unwatched, c.left[gpu] = true, d.Status.Good()
		}
		r.Devices = append(r.Devices, d)
	}
	return nil
}
