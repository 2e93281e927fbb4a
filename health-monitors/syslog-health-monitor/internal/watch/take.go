package watch

import (
	"errors"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/gpumetadata"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/fallenoff"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/gpureset"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sighting"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sxid"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/xid"
	"github.com/nvidia/nvsentinel/internal/report"
)

// messageBytes is where the connector would cut a message.
const messageBytes = 32 << 10

// errToWrite ends a walk without a transaction at the first line that has an
// event to write.
var errToWrite = errors.New("an event is to be written")

// taking is one walk over lines, in a transaction or, as long as there is nothing
// to write but the state, without.
type taking struct {
	m  *Monitor
	tx *report.Tx // nil without
	s  *state

	lines      int // lines that are done
	events     []*protos.HealthEvent
	counted    int // events that are held back
	look       firstLook
	foreign    int
	unsendable int
	seen       map[string]bool // checks of which a code of the current boot was seen
	resets     []string        // outcomes of GPU resets
	repeated   []string        // rules whose matches were only counted
	cancelled  [][2]string     // source and target codes of cancellations
}

// all takes lines; it fails when the outbox is full before they are done.
func (t *taking) all(lines []source.Line) error {
	for _, line := range lines {
		if err := t.one(line); err != nil {
			return err
		}
		t.s.Cursor = line.Cursor
		t.lines++
	}
	return nil
}

// one takes a line: first those that are known by a number or a form of their
// own, then the patterns.
func (t *taking) one(line source.Line) error {
	if line.Gap != nil {
		if err := t.gap(line); err != nil {
			return err
		}
	}
	t.s.Patterns.Pass(1)
	if at := strings.Index(line.Text, driver); at >= 0 {
		if known, err := t.ofDriver(line, at); known || err != nil {
			return err
		}
		return t.ofPatterns(line)
	}
	t.s.Fallen = t.s.Fallen.Pass(1)
	if at := strings.Index(line.Text, sxid.Marker); at >= 0 {
		return t.ofSwitch(line, at)
	}
	if strings.Contains(line.Text, gpureset.Marker) {
		return t.ofResetTool(line)
	}
	return t.ofPatterns(line)
}

// believes tells whether the kernel wrote a line.
func (t *taking) believes(line source.Line, at int) bool {
	return t.m.Policy.UserLines || line.Kernel && kernellog.FromKernel(line.Text, at)
}

// ofDriver takes a line of the GPU driver; known says that patterns have nothing
// to add.
func (t *taking) ofDriver(line source.Line, at int) (known bool, err error) {
	faults := xid.ParseAll(line.Text)
	pci, uuid, isOwner := xid.ParseOwner(line.Text)
	begun, fallen := t.s.Fallen.Read(line.Text)
	if !t.believes(line, at) {
		if len(faults) > 0 || isOwner || fallen {
			t.foreign++
		}
		t.s.Fallen = t.s.Fallen.Pass(1)
		return true, nil
	}
	t.s.Fallen = begun
	switch {
	case len(faults) > 0:
		for _, f := range faults {
			if err := t.xid(line, f); err != nil {
				return true, err
			}
		}
		return true, nil
	case isOwner:
		t.s.own(pci, uuid)
		return true, nil
	case fallen:
		return true, t.fallenOff(line, begun)
	}
	return false, nil
}

// xid reports an XID, and what it cancels.
func (t *taking) xid(line source.Line, f xid.Fault) error {
	d := t.device(f.PCI)
	if f.Withdrawn() {
		t.cancelled = append(t.cancelled, [2]string{t.m.xidLabel(f.Number), t.m.xidLabel(f.Number)})
		return t.clear(line, xid.Withdrawal(d, t.recoverySighting(line), kernellog.Cut(line.Text, messageBytes)), f.PCI)
	}
	if f.Code == xid.OffTheBus {
		t.lose(line, f.PCI)
	}
	j := t.m.Policy.Catalogue.XIDs.Judge(f, d.Driver)
	e := t.m.Policy.Catalogue.XIDs.Event(f, d, t.sighting(line), kernellog.Cut(line.Text, messageBytes))
	err := t.send(line, e, recovery.Report{
		Device: f.PCI, Code: f.ErrorCode(), Fatal: j.Fatal, RebootCures: j.RebootCures, ResetCures: j.ResetCures(),
	})
	if err != nil {
		return err
	}
	targets := t.m.Policy.Cancels[f.ErrorCode()]
	if len(targets) == 0 {
		return nil
	}
	for _, target := range targets {
		t.cancelled = append(t.cancelled, [2]string{t.m.xidLabel(f.ErrorCode()), t.m.xidLabel(target)})
	}
	return t.clear(line, xid.Cancellation(d, t.recoverySighting(line), f.ErrorCode(), targets), f.PCI)
}

// ofSwitch takes a line of the NVSwitch driver.
func (t *taking) ofSwitch(line source.Line, at int) error {
	codes := t.m.Policy.Catalogue.SXIDs
	f, ok := codes.Parse(line.Text)
	if !ok {
		return nil
	}
	if !t.believes(line, at) {
		t.foreign++
		return nil
	}
	inv := t.m.Devices.Inventory()
	d := sighting.Device{Chassis: inv.Chassis}
	if gpu, ok := inv.ByPort[gpumetadata.Port{PCI: f.PCI, Link: f.Link}]; ok {
		d.UUID, d.Index = gpu.UUID, gpu.Index
	}
	j := codes.Judge(f)
	e := codes.Event(f, d, t.sighting(line), kernellog.Cut(line.Text, messageBytes))
	return t.send(line, e, recovery.Report{
		Device: f.PCI, Named: recovery.Device{Names: sxid.Names(f)}, Code: f.Number, Fatal: j.Fatal, RebootCures: j.RebootCures,
	})
}

// fallenOff reports a GPU that fell off the bus.
func (t *taking) fallenOff(line source.Line, b fallenoff.Begun) error {
	d := t.device(sighting.Address(b.PCI))
	e := fallenoff.Event(b, d, t.sighting(line), kernellog.Cut(line.Text, messageBytes))
	err := t.send(line, e, recovery.Report{Device: d.PCI, Code: fallenoff.Code, Fatal: true, RebootCures: true})
	if err == nil {
		t.s.Fallen = fallenoff.Begun{}
		t.lose(line, d.PCI)
	}
	return err
}

// lose notes that a GPU is off the bus, whose fault is reported.
func (t *taking) lose(line source.Line, pci string) {
	if !line.Past && !t.tooOld(line) {
		t.s.lose(pci)
	}
}

// ofResetTool takes the outcome of a GPU reset. It clears faults, so that only
// what root provably wrote is believed.
func (t *taking) ofResetTool(line source.Line) error {
	o, ok := gpureset.Parse(line.Text)
	if !ok {
		return nil
	}
	if !t.m.Policy.UserLines && !line.Root {
		t.foreign++
		return nil
	}
	d := t.deviceOf(o.UUID)
	if !o.Success {
		t.resets = append(t.resets, "failure")
		e := gpureset.Failed(xid.Check, d, t.sighting(line), kernellog.Cut(line.Text, messageBytes))
		return t.send(line, e, recovery.Report{
			Device: d.PCI, Code: gpureset.CodeFailure, Fatal: true, RebootCures: true, ResetCures: true,
		})
	}
	t.resets = append(t.resets, "success")
	delete(t.s.Lost, d.PCI)
	codes := t.s.Memory[xid.Check].AfterReset(d.PCI, append(t.m.Policy.Catalogue.XIDs.ResetCodes(), gpureset.CodeFailure))
	if err := t.clear(line, gpureset.Succeeded(xid.Check, d, t.recoverySighting(line), codes), d.PCI); err != nil {
		return err
	}
	return t.clearPatterns(line, d)
}

// sighting of an event about a line.
func (t *taking) sighting(line source.Line) sighting.Sighting {
	s := sighting.Sighting{Node: t.m.Policy.Node, Boot: t.s.Boot, Strategy: t.m.Policy.Strategy, At: t.m.Clock.Now()}
	if line.Past {
		s.Boot = t.s.PastBoot
	}
	if line.Boot != "" {
		s.Boot = line.Boot
	}
	if !line.At.IsZero() {
		s.At = line.At
	}
	return s
}

// recoverySighting carries the strategy of what is cleared of the XIDs.
func (t *taking) recoverySighting(line source.Line) sighting.Sighting {
	return t.recoveryOf(xid.Check, line)
}

func (t *taking) recoveryOf(check string, line source.Line) sighting.Sighting {
	s := t.sighting(line)
	s.Strategy = t.s.Memory[check].Strategy(s.Strategy)
	return s
}

// send appends an unhealthy event and remembers it for the recovery.
func (t *taking) send(line source.Line, e *protos.HealthEvent, r recovery.Report) error {
	if r.Strategy == "" {
		r.Strategy = t.m.Policy.Strategy
	}
	if r.Named.Names == nil {
		r.Named = named(e)
	}
	if t.tooOld(line) {
		t.look.tooOld++
		t.s.remember(e.CheckName, r)
		return nil
	}
	t.mark(line, e)
	if sent, err := t.report(e); err != nil || !sent {
		return err
	}
	r.ID = e.Id
	t.s.remember(e.CheckName, r)
	if line.Past {
		return nil
	}
	t.seen[e.CheckName] = true
	if r.Fatal {
		t.s.faulted(e.CheckName)
	}
	return nil
}

// named is what a recovery names the device of an event by: all of its names,
// and none of its parts.
func named(e *protos.HealthEvent) (d recovery.Device) {
	for _, x := range e.EntitiesImpacted {
		if fault.IsSubUnit(x.EntityType) {
			continue
		}
		if x.EntityType == "GPU_UUID" {
			d.UUID = x.EntityValue
		}
		d.Names = append(d.Names, [2]string{x.EntityType, x.EntityValue})
	}
	return d
}

// clear appends a healthy event about a device and forgets what it clears.
func (t *taking) clear(line source.Line, e *protos.HealthEvent, device string) error {
	if t.tooOld(line) {
		t.s.forget(e.CheckName, device, e.ErrorCode)
		return nil
	}
	for _, counted := range t.s.Storms.End(t.m.Clock.Now(), e.CheckName) {
		if _, err := t.put(counted); err != nil {
			return err
		}
	}
	if sent, err := t.put(e); err != nil || !sent {
		return err
	}
	t.occurred(e)
	t.s.forget(e.CheckName, device, e.ErrorCode)
	return nil
}

// put appends an event; sent is false for one that nobody could ever send.
func (t *taking) put(e *protos.HealthEvent) (sent bool, err error) {
	if t.tx == nil {
		return false, errToWrite
	}
	err = t.tx.Append(e)
	if errors.Is(err, report.ErrTooLarge) || errors.Is(err, report.ErrInvalid) {
		t.unsendable++
		t.m.Log.Error("event cannot be sent and was dropped", "check", e.CheckName, "code", e.ErrorCode, "error", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if e.Metadata[record.MetadataBootID] != t.s.Boot {
		t.s.Through = t.tx.LastSeq()
	}
	return true, nil
}

// device looks up the GPU at a PCI address: the metadata file first, then the
// driver's own lines.
func (t *taking) device(pci string) sighting.Device {
	inv := t.m.Devices.Inventory()
	d := sighting.Device{PCI: pci, Chassis: inv.Chassis, Driver: inv.Driver}
	if gpu, ok := inv.ByPCI[pci]; ok {
		d.UUID, d.Index, d.Listed = gpu.UUID, gpu.Index, true
		return d
	}
	d.UUID = t.s.Owners[pci]
	return d
}

// deviceOf looks up a GPU by its UUID; one that nobody knows has no other name.
func (t *taking) deviceOf(uuid string) sighting.Device {
	if gpu, ok := t.m.Devices.Inventory().ByUUID(uuid); ok {
		return t.device(gpu.PCI)
	}
	for pci, owner := range t.s.Owners {
		if owner == uuid {
			return t.device(pci)
		}
	}
	return sighting.Device{UUID: uuid, Chassis: t.m.Devices.Inventory().Chassis}
}
