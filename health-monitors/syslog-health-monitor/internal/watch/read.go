package watch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/fallenoff"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/pattern"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/storm"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sxid"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/report"
)

// driver begins every message of the GPU driver.
const driver = "NVRM: "

// speaks reports whether a line may matter to a check.
func (m *Monitor) speaks(l source.Line) bool {
	return l.Gap != nil || m.Policy.Catalogue.Patterns.Speaks(l.Text) || strings.Contains(l.Text, driver) || strings.Contains(l.Text, sxid.Marker) || strings.Contains(l.Text, recovery.ResetMarker)
}

// readOn takes the next lines into the outbox; more is true if there may be further ones.
func (m *Monitor) readOn() (more bool, err error) {
	if len(m.pending) == 0 {
		batch, err := m.Source.Read(linesAtOnce)
		for _, note := range batch.Notes {
			m.Log.Warn("kernel log read incomplete", "what", note)
		}
		if err != nil {
			m.opened = false
			return false, fmt.Errorf("reading the kernel log: %w", err)
		}
		if batch.Restarted {
			return true, m.beginInitialRead()
		}
		if batch.End {
			m.reachedEnd()
			m.endInitialRead()
		}
		if len(batch.Lines) == 0 {
			return false, nil
		}
		m.pending = batch.Lines
		m.Metrics.Lines.Add(float64(len(batch.Lines)))
		crashpoint.Here(location.Agent + "/read")
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
		m.idleSince[check] = now
	}
}

// writePlace writes down, now and then, how far a log without faults was read.
func (m *Monitor) writePlace() error {
	pace := notePace
	if m.state.Storms.Pending() {
		pace = countPace
	}
	if age := m.Clock.Since(m.noted); !m.dirty || age >= 0 && age < pace {
		return nil
	}
	return m.commit(func(*report.Tx, *state) error { return nil })
}

// take moves pending lines into the outbox. Events and the place behind their
// lines become durable in one step, so that a crash neither loses nor doubles a
// line. A full outbox keeps the rest pending: the log is read no further, and
// the kernel keeps it.
func (m *Monitor) take() (more bool, err error) {
	if !slices.ContainsFunc(m.pending, m.speaks) {
		m.state.Cursor, m.dirty = m.pending[len(m.pending)-1].Cursor, true
		m.state.Fallen = m.state.Fallen.Pass(len(m.pending))
		m.state.Patterns.Pass(len(m.pending))
		m.state.GSP = m.state.GSP.pass(len(m.pending))
		m.pending = nil
		return true, nil
	}
	if m.takeWithoutEvents() {
		return true, nil
	}
	t, err := fitting(m.pending, m.commitLines)
	if err != nil {
		return false, err
	}
	crashpoint.Here(location.Agent + "/outboxed")
	m.pending = m.pending[t.lines:]
	m.account(t)
	return true, nil
}

// takeWithoutEvents takes the pending lines if none of them has an event to
// write, as those of a chatty driver and of a storm that is counted: the state
// they leave is written with the next event, or at its own pace.
func (m *Monitor) takeWithoutEvents() bool {
	next := m.state.clone()
	t := batch{m: m, s: &next, seen: map[string]bool{}}
	if err := t.all(m.pending); err != nil {
		return false
	}
	m.state, m.dirty, m.pending = next, true, nil
	m.account(t)
	return true
}

// fitting commits lines, or as many as fit: those before the one that found the
// outbox full, and half as many for each time that the disk is.
func fitting(lines []source.Line, commit func([]source.Line) (batch, error)) (batch, error) {
	for {
		t, err := commit(lines)
		switch {
		case errors.Is(err, report.ErrFull) && t.lines > 0:
			lines = lines[:t.lines]
		case errors.Is(err, syscall.ENOSPC) && len(lines) > 1:
			lines = lines[:len(lines)/2]
		default:
			return t, err
		}
	}
}

// commitLines takes lines in one transaction. With ErrFull nothing was taken, and the
// result shows how many lines would have fitted.
func (m *Monitor) commitLines(lines []source.Line) (batch, error) {
	var t batch
	err := m.commit(func(tx *report.Tx, s *state) error {
		t = batch{m: m, tx: tx, s: s, seen: map[string]bool{}}
		return t.all(lines)
	})
	return t, err
}

// account counts what a take did, once it is durable.
func (m *Monitor) account(t batch) {
	for _, e := range t.events {
		switch {
		case e.CheckName == GapCheck:
			m.Metrics.Gaps.Inc()
		case e.IsHealthy || e.ErrorCode[0] == recovery.CodeResetFailure: // counted by what caused it
		case e.CheckName == xid.Check:
			m.Metrics.XIDs.WithLabelValues(m.xidLabel(e.ErrorCode[0])).Inc()
		case e.CheckName == sxid.Check:
			m.Metrics.SXIDs.WithLabelValues(m.sxidLabel(e.ErrorCode[0])).Inc()
		case e.CheckName == fallenoff.Check:
			m.Metrics.FallenOff.Inc()
		}
		if rule := e.Metadata[pattern.MetadataPattern]; rule != "" {
			m.Metrics.Patterns.WithLabelValues(rule).Inc()
		}
	}
	for _, rule := range t.repeated {
		m.Metrics.Repeats.WithLabelValues(rule).Inc()
	}
	for _, result := range t.resets {
		m.Metrics.Resets.WithLabelValues(result).Inc()
	}
	for _, c := range t.cancelled {
		m.Metrics.Cancellations.WithLabelValues(c[0], c[1]).Inc()
	}
	m.initial.reported += t.initial.reported
	m.initial.tooOld += t.initial.tooOld
	m.Metrics.InitialRead.WithLabelValues("reported").Add(float64(t.initial.reported))
	m.Metrics.InitialRead.WithLabelValues("too-old").Add(float64(t.initial.tooOld))
	m.Metrics.Counted.Add(float64(t.counted))
	m.Metrics.ForeignLines.Add(float64(t.foreign))
	m.Metrics.Unsendable.Add(float64(t.unsendable))
	for check := range t.seen {
		m.idleSince[check] = m.Clock.Now()
	}
}

// xidLabel bounds the label: the number alone, and codes outside the catalogue
// are one.
func (m *Monitor) xidLabel(code string) string {
	number, _, _ := strings.Cut(code, ".")
	n, err := strconv.Atoi(number)
	if _, known := m.Policy.Catalogue.XIDs[n]; err != nil || !known {
		return unknown
	}
	return number
}

func (m *Monitor) sxidLabel(code string) string {
	n, err := strconv.Atoi(code)
	if _, known := m.Policy.Catalogue.SXIDs[n]; err != nil || !known {
		return unknown
	}
	return code
}

const unknown = "unknown"

// GapCheck reports stretches of the kernel log that were lost before they could be read:
// what they contained is not known. GapCode is its code.
const (
	GapCheck = "SysLogsGap"
	GapCode  = "LOG_GAP"
)

// gap reports what was lost before a line. It is no fault of a device and asks
// for nothing; the node was not watched for that long.
func (b *batch) gap(line source.Line) error {
	s := b.sighting(line)
	s.Strategy = b.m.Policy.GapStrategy
	e := s.Event(GapCheck)
	e.ErrorCode, e.RecommendedAction = []string{GapCode}, protos.RecommendedAction_NONE
	e.Message = line.Gap.Why + " (the content of the lost lines is unknown)"
	if line.Gap.Lost > 0 {
		e.Message = fmt.Sprintf("%s (%d lines with unknown content)", line.Gap.Why, line.Gap.Lost)
		e.Metadata[storm.MetadataLost] = strconv.FormatInt(line.Gap.Lost, 10)
	}
	if sent, err := b.report(e); err != nil || !sent {
		return err
	}
	// One that was only observed leaves nothing to be recovered from.
	if s.Strategy == record.Process {
		b.s.remember(GapCheck, recovery.Report{Code: GapCode, Strategy: s.Strategy, RebootCures: true})
	}
	return nil
}

// MetadataInitialRead marks a fault that was written before the monitor had ever
// looked, or after it had forgotten that it did: it may be known, and repaired.
const MetadataInitialRead = "firstLook"

// initialRead counts what a first look back finds.
type initialRead struct{ reported, tooOld int }

// tooOld reports whether a line is so much older than the first read that it makes no event.
// Its fault is remembered all the same: it may have been reported before the state was
// lost, and then needs a recovery when a reboot cures it.
func (b *batch) tooOld(line source.Line) bool {
	began := b.s.InitialRead
	return !began.IsZero() && !line.At.IsZero() && line.At.Before(began.Add(-b.m.Policy.LookBack))
}

// mark marks an event about a line of before the first look.
func (b *batch) mark(line source.Line, e *protos.HealthEvent) {
	if began := b.s.InitialRead; !began.IsZero() && !line.At.After(began) {
		e.Metadata[MetadataInitialRead] = "true"
		b.initial.reported++
	}
}

// beginInitialRead notes that the log begins again: its faults may have been reported
// before, as on a node without a state. If that cannot be written, the log is opened again
// and begins again.
func (m *Monitor) beginInitialRead() error {
	err := m.commit(func(_ *report.Tx, s *state) error {
		s.InitialRead = m.Clock.Now()
		return nil
	})
	m.opened = err == nil
	return err
}

// endInitialRead logs what a first read has found; later lines are new.
func (m *Monitor) endInitialRead() {
	if m.state.InitialRead.IsZero() {
		return
	}
	m.Log.Info("kernel log read for the first time", "since", m.state.InitialRead.Add(-m.Policy.LookBack),
		"faults", m.initial.reported, "olderFaultsLeftOut", m.initial.tooOld)
	m.state.InitialRead, m.dirty = time.Time{}, true
}
