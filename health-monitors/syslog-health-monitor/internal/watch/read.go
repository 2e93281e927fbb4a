package watch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/xid"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/report"
)

// messageBytes is where the connector would cut a message.
const messageBytes = 32 << 10

// driver begins every message of the GPU driver; other lines say nothing to us.
const driver = "NVRM: "

// readOn takes the next lines into the outbox; more says that there may be
// further ones.
func (m *Monitor) readOn() (more bool, err error) {
	if len(m.pending) == 0 {
		batch, err := m.Source.Read(linesAtOnce)
		for _, note := range batch.Notes {
			m.Log.Warn("kernel log was not read smoothly", "what", note)
		}
		if err != nil {
			m.opened = false
			return false, fmt.Errorf("reading the kernel log: %w", err)
		}
		if batch.End {
			m.reachedEnd()
		}
		if len(batch.Lines) == 0 {
			return false, m.writePlace()
		}
		m.pending = batch.Lines
		m.Metrics.Lines.Add(float64(len(batch.Lines)))
		crashpoint.Here(xid.Agent + "/read")
	}
	return m.take()
}

// reachedEnd starts the settling time of the checks that owe a recovery.
func (m *Monitor) reachedEnd() {
	if m.caught {
		return
	}
	m.caught = true
	now := m.Clock.Now()
	for check := range m.state.Owed {
		m.quiet[check] = now
	}
}

// writePlace writes down, now and then, how far a log without faults was read.
func (m *Monitor) writePlace() error {
	if !m.dirty || m.Clock.Since(m.noted) < notePace {
		return nil
	}
	return m.commit(func(*report.Tx, *state) error { return nil })
}

// take moves pending lines into the outbox. Events and the place behind their
// lines become durable in one step, so that a crash neither loses nor doubles a
// line. A full outbox keeps the rest pending: the log is read no further, and
// the kernel keeps it.
func (m *Monitor) take() (more bool, err error) {
	if !slices.ContainsFunc(m.pending, func(l source.Line) bool { return strings.Contains(l.Text, driver) }) {
		m.state.Cursor, m.dirty = m.pending[len(m.pending)-1].Cursor, true
		m.pending = nil
		return true, nil
	}
	var t taking
	err = m.commit(func(tx *report.Tx, s *state) error {
		t = taking{m: m, tx: tx, s: s}
		return t.all(m.pending)
	})
	if err != nil {
		return false, err
	}
	crashpoint.Here(xid.Agent + "/outboxed")
	m.pending = m.pending[t.lines:]
	m.account(t)
	return true, nil
}

// account counts what a take did, once it is durable.
func (m *Monitor) account(t taking) {
	for _, e := range t.events {
		m.Metrics.XIDs.WithLabelValues(codeLabel(e)).Inc()
	}
	m.Metrics.ForeignLines.Add(float64(t.foreign))
	m.Metrics.Unsendable.Add(float64(t.unsendable))
	if t.code {
		m.quiet[xid.Check] = m.Clock.Now()
	}
}

// codeLabel bounds the label: codes outside the catalogue are one.
func codeLabel(e *protos.HealthEvent) string {
	code, err := strconv.Atoi(e.ErrorCode[0])
	if _, known := xid.Lookup(code); err != nil || !known {
		return "unknown"
	}
	return e.ErrorCode[0]
}

// taking is one transaction's walk over lines.
type taking struct {
	m  *Monitor
	tx *report.Tx
	s  *state

	lines      int // lines that are done
	events     []*protos.HealthEvent
	foreign    int
	unsendable int
	code       bool // a code of the current boot was seen
}

// all takes lines until the outbox is full; it fails when it is full already.
func (t *taking) all(lines []source.Line) error {
	for _, line := range lines {
		err := t.one(line)
		if errors.Is(err, report.ErrFull) && t.lines > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		t.s.Cursor = line.Cursor
		t.lines++
	}
	return nil
}

func (t *taking) one(line source.Line) error {
	at := strings.Index(line.Text, driver)
	if at < 0 {
		return nil
	}
	fault, isFault := xid.Parse(line.Text)
	pci, uuid, isOwner := xid.ParseOwner(line.Text)
	if !isFault && !isOwner {
		return nil
	}
	if !t.m.Policy.UserLines && (!line.Kernel || !kernellog.FromKernel(line.Text, at)) {
		t.foreign++
		return nil
	}
	if isOwner {
		t.s.own(pci, uuid)
		return nil
	}
	return t.fault(line, fault)
}

// fault appends the event of one XID and remembers it for the recovery.
func (t *taking) fault(line source.Line, f xid.Fault) error {
	boot, at := t.s.Boot, t.m.Clock.Now()
	if line.Past {
		boot = t.s.PastBoot
	}
	if line.Boot != "" {
		boot = line.Boot
	}
	if !line.At.IsZero() {
		at = line.At
	}
	e := xid.Event(f, t.device(f.PCI), xid.Sighting{
		Node: t.m.Policy.Node, Boot: boot, Strategy: t.m.Policy.Strategy, At: at,
	}, kernellog.Cut(line.Text, messageBytes))
	err := t.tx.Append(e)
	if errors.Is(err, report.ErrTooLarge) || errors.Is(err, report.ErrInvalid) {
		t.unsendable++
		t.m.Log.Error("event cannot be sent and was dropped", "code", f.Number, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	t.events = append(t.events, e)
	j := xid.Judge(f)
	t.s.remember(xid.Check, recovery.Report{
		Code: f.Number, Strategy: t.m.Policy.Strategy, Fatal: j.Fatal, RebootCures: j.RebootCures,
	})
	if line.Past {
		t.s.Through = t.tx.LastSeq()
		return nil
	}
	t.code = true
	if j.Fatal {
		t.s.faulted(xid.Check)
	}
	return nil
}

// device looks up the GPU at a PCI address: the metadata file first, then the
// driver's own lines.
func (t *taking) device(pci string) xid.Device {
	inv := t.m.Devices.Inventory()
	d := xid.Device{Chassis: inv.Chassis}
	if gpu, ok := inv.ByPCI[pci]; ok {
		d.UUID, d.Index, d.Listed = gpu.UUID, gpu.Index, true
		return d
	}
	d.UUID = t.s.Owners[pci]
	return d
}
