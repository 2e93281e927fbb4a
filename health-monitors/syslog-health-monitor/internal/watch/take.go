package watch

import (
	"errors"
	"strings"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/fallenoff"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sxid"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/internal/report"
)

// messageBytes is where the connector would cut a message.
const messageBytes = 32 << 10

// errToWrite ends a walk without a transaction at the first line that has an
// event to write.
var errToWrite = errors.New("an event is to be written")

// batch is one walk over lines, in a transaction or, as long as there is nothing
// to write but the state, without.
type batch struct {
	m  *Monitor
	tx *report.Tx // nil without
	s  *state

	lines      int // lines that are done
	events     []*protos.HealthEvent
	counted    int // events that are held back
	initial    initialRead
	foreign    int
	unsendable int
	seen       map[string]bool // checks of which a code of the current boot was seen
	resets     []string        // outcomes of GPU resets
	repeated   []string        // rules whose matches were only counted
	cancelled  [][2]string     // source and target codes of cancellations
}

// all takes lines; it fails when the outbox is full before they are done.
func (b *batch) all(lines []source.Line) error {
	for _, line := range lines {
		if err := b.one(line); err != nil {
			return err
		}
		b.s.Cursor = line.Cursor
		b.lines++
	}
	return nil
}

// one takes a line: first those that are known by a number or a form of their
// own, then the patterns.
func (b *batch) one(line source.Line) error {
	if line.Gap != nil {
		if err := b.gap(line); err != nil {
			return err
		}
	}
	b.s.Patterns.Pass(1)
	b.s.GSP = b.s.GSP.pass(1)
	text, believed := b.message(line)
	switch {
	case strings.Contains(line.Text, recovery.ResetMarker):
		b.s.Fallen = b.s.Fallen.Pass(1)
		return b.ofResetTool(line)
	case !believed || quoted(text):
		b.s.Fallen = b.s.Fallen.Pass(1)
		if b.m.speaks(line) {
			b.foreign++
		}
		return nil
	case strings.HasPrefix(text, driver):
		if known, err := b.ofDriver(line, text); known || err != nil {
			return err
		}
		return b.ofPatterns(line, text)
	}
	b.s.Fallen = b.s.Fallen.Pass(1)
	if strings.HasPrefix(text, sxid.Marker) {
		return b.ofSwitch(line, text)
	}
	return b.ofPatterns(line, text)
}

// quoted reports whether a message has words of the GPU's drivers behind its beginning, and
// begins with none. The GPU driver's own messages name processes, and one of them may be
// called like the other driver.
func quoted(text string) bool {
	if strings.HasPrefix(text, driver) {
		return false
	}
	return strings.Contains(text, driver) || strings.Contains(text, sxid.Marker) && !strings.HasPrefix(text, sxid.Marker)
}

// message returns the text of a line, from the kernel's first word on, and whether it is
// believed to be the kernel's. What a message means stands at its beginning: behind it the
// kernel quotes names of programs and files, which any user chooses.
func (b *batch) message(line source.Line) (text string, believed bool) {
	text = kernellog.Colon(line.Text)
	if !b.m.Policy.UserLines {
		return text, line.Kernel
	}
	for _, marker := range []string{driver, sxid.Marker} { // behind the tags of test tools
		if at := strings.Index(text, marker); at >= 0 {
			return text[at:], true
		}
	}
	return text, true
}

// ofDriver takes a message of the GPU driver; known is true if patterns have nothing to
// add.
func (b *batch) ofDriver(line source.Line, text string) (known bool, err error) {
	faults := xid.ParseAll(text)
	pci, uuid, isOwner := xid.ParseOwner(text)
	begun, fallen := b.s.Fallen.Read(text)
	b.s.Fallen = begun
	switch {
	case len(faults) > 0:
		for _, f := range faults {
			if err := b.xid(line, f); err != nil {
				return true, err
			}
		}
		return true, nil
	case isOwner:
		b.s.own(pci, uuid)
		return true, nil
	case fallen:
		return true, b.fallenOff(line, begun)
	}
	return false, nil
}

// xid reports an XID, and what it cancels.
func (b *batch) xid(line source.Line, f xid.Fault) error {
	d := b.device(f.PCI)
	if f.Withdrawn() {
		b.cancelled = append(b.cancelled, [2]string{b.m.xidLabel(f.Number), b.m.xidLabel(f.Number)})
		return b.clear(line, xid.Withdrawal(d, b.recoverySighting(line), kernellog.Cut(line.Text, messageBytes)), f.PCI)
	}
	if f.Code == xid.OffTheBus {
		b.lose(line, f.PCI)
	}
	if f.Code == xid.GSPTimeout || f.Code == xid.GSPError {
		b.s.GSP = b.s.GSP.fails(f.PCI)
	}
	j := b.m.Policy.Catalogue.XIDs.Evaluate(f, d.Driver)
	e := b.m.Policy.Catalogue.XIDs.Event(f, d, b.sighting(line), kernellog.Cut(line.Text, messageBytes))
	err := b.send(line, e, recovery.Report{
		Device: f.PCI, Code: f.ErrorCode(), Fatal: j.Fatal, RebootCures: j.RebootCures, ResetCures: j.ResetCures(),
	})
	if err != nil {
		return err
	}
	targets := b.m.Policy.Cancels[f.ErrorCode()]
	if len(targets) == 0 {
		return nil
	}
	for _, target := range targets {
		b.cancelled = append(b.cancelled, [2]string{b.m.xidLabel(f.ErrorCode()), b.m.xidLabel(target)})
	}
	return b.clear(line, xid.Cancellation(d, b.recoverySighting(line), f.ErrorCode(), targets), f.PCI)
}

// ofSwitch takes a message of the NVSwitch driver.
func (b *batch) ofSwitch(line source.Line, text string) error {
	codes := b.m.Policy.Catalogue.SXIDs
	f, ok := codes.Parse(text)
	if !ok {
		return nil
	}
	inv := b.m.Devices.Inventory()
	d := location.Device{Chassis: inv.Chassis}
	if gpu, ok := inv.ByPort[nodefile.Port{PCI: f.PCI, Link: f.Link}]; ok {
		d.UUID, d.Index = gpu.UUID, gpu.Index
	}
	j := codes.Evaluate(f)
	e := codes.Event(f, d, b.sighting(line), kernellog.Cut(line.Text, messageBytes))
	return b.send(line, e, recovery.Report{
		Device: f.PCI, Named: recovery.Device{Names: sxid.Names(f)}, Code: f.Number, Fatal: j.Fatal, RebootCures: j.RebootCures,
	})
}

// fallenOff reports a GPU that fell off the bus.
func (b *batch) fallenOff(line source.Line, begun fallenoff.Begun) error {
	d := b.device(location.Address(begun.PCI))
	e := fallenoff.Event(begun, d, b.sighting(line), kernellog.Cut(line.Text, messageBytes))
	err := b.send(line, e, recovery.Report{Device: d.PCI, Code: fallenoff.Code, Fatal: true, RebootCures: true})
	if err == nil {
		b.s.Fallen = fallenoff.Begun{}
		b.lose(line, d.PCI)
	}
	return err
}

// lose notes that a GPU is off the bus, whose fault is reported.
func (b *batch) lose(line source.Line, pci string) {
	if !line.Past && !b.tooOld(line) {
		b.s.lose(pci)
	}
}

// ofResetTool takes the outcome of a GPU reset. It clears faults, so that only
// what root provably wrote is believed.
func (b *batch) ofResetTool(line source.Line) error {
	o, ok := recovery.ParseReset(line.Text)
	if !ok {
		return nil
	}
	if !b.m.Policy.UserLines && !line.Root {
		b.foreign++
		return nil
	}
	d := b.deviceOf(o.UUID)
	if !o.Success {
		b.resets = append(b.resets, "failure")
		e := recovery.ResetFailed(xid.Check, d, b.sighting(line), kernellog.Cut(line.Text, messageBytes))
		return b.send(line, e, recovery.Report{
			Device: d.PCI, Code: recovery.CodeResetFailure, Fatal: true, RebootCures: true, ResetCures: true,
		})
	}
	b.resets = append(b.resets, "success")
	delete(b.s.Lost, d.PCI)
	codes := b.s.Memory[xid.Check].AfterReset(d.PCI, append(b.m.Policy.Catalogue.XIDs.ResetCodes(), recovery.CodeResetFailure))
	if err := b.clear(line, recovery.ResetSucceeded(xid.Check, d, b.recoverySighting(line), codes), d.PCI); err != nil {
		return err
	}
	return b.clearPatterns(line, d)
}

// sighting of an event about a line.
func (b *batch) sighting(line source.Line) location.Sighting {
	s := location.Sighting{Node: b.m.Policy.Node, Boot: b.s.Boot, Strategy: b.m.Policy.Strategy, At: b.m.Clock.Now()}
	if line.Past {
		s.Boot = b.s.PastBoot
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
func (b *batch) recoverySighting(line source.Line) location.Sighting {
	return b.recoveryOf(xid.Check, line)
}

func (b *batch) recoveryOf(check string, line source.Line) location.Sighting {
	s := b.sighting(line)
	s.Strategy = b.s.Memory[check].Strategy(s.Strategy)
	return s
}

// send appends an unhealthy event and remembers it for the recovery.
func (b *batch) send(line source.Line, e *protos.HealthEvent, r recovery.Report) error {
	if r.Strategy == "" {
		r.Strategy = b.m.Policy.Strategy
	}
	if r.Named.Names == nil {
		r.Named = named(e)
	}
	if b.tooOld(line) {
		b.initial.tooOld++
		b.s.remember(e.CheckName, r)
		return nil
	}
	b.mark(line, e)
	if sent, err := b.report(e); err != nil || !sent {
		return err
	}
	r.ID = e.Id
	b.s.remember(e.CheckName, r)
	if line.Past {
		return nil
	}
	b.seen[e.CheckName] = true
	if r.Fatal {
		b.s.faulted(e.CheckName)
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
func (b *batch) clear(line source.Line, e *protos.HealthEvent, device string) error {
	if b.tooOld(line) {
		b.s.forget(e.CheckName, device, e.ErrorCode)
		return nil
	}
	for _, counted := range b.s.Storms.End(b.m.Clock.Now(), e.CheckName) {
		if _, err := b.append(counted); err != nil {
			return err
		}
	}
	if sent, err := b.append(e); err != nil || !sent {
		return err
	}
	b.occurred(e)
	b.s.forget(e.CheckName, device, e.ErrorCode)
	return nil
}

// append appends an event; sent is false for one that nobody could ever send.
func (b *batch) append(e *protos.HealthEvent) (sent bool, err error) {
	if b.tx == nil {
		return false, errToWrite
	}
	err = b.tx.Append(e)
	if errors.Is(err, report.ErrTooLarge) || errors.Is(err, report.ErrInvalid) {
		b.unsendable++
		b.m.Log.Error("unsendable event dropped", "check", e.CheckName, "code", e.ErrorCode, "error", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if e.Metadata[record.MetadataBootID] != b.s.Boot {
		b.s.Through = b.tx.LastSeq()
	}
	return true, nil
}

// device looks up the GPU at a PCI address: the metadata file first, then the
// driver's own lines.
func (b *batch) device(pci string) location.Device {
	inv := b.m.Devices.Inventory()
	d := location.Device{PCI: pci, Chassis: inv.Chassis, Driver: inv.Driver}
	if gpu, ok := inv.ByPCI[pci]; ok {
		d.UUID, d.Index, d.Listed = gpu.UUID, gpu.Index, true
		return d
	}
	d.UUID = b.s.Owners[pci]
	return d
}

// deviceOf looks up a GPU by its UUID; one that nobody knows has no other name.
func (b *batch) deviceOf(uuid string) location.Device {
	if gpu, ok := b.m.Devices.Inventory().ByUUID(uuid); ok {
		return b.device(gpu.PCI)
	}
	for pci, owner := range b.s.Owners {
		if owner == uuid {
			return b.device(pci)
		}
	}
	return location.Device{UUID: uuid, Chassis: b.m.Devices.Inventory().Chassis}
}
