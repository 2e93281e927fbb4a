// Package watch is the loop of the syslog health monitor: it reads the kernel
// log, puts what it finds into the outbox together with the place it was read
// from, notices reboots, and reports what a reboot has cured.
package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/internal/polling"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/catalogue"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Tick is how often the boot id and the log are looked at.
const Tick = 250 * time.Millisecond

// linesAtOnce bounds what one pass reads, so that a flood of lines delays
// neither the boot id nor the end of the process.
const linesAtOnce = 512

// Paces at which a place is written down that has no events to go with: losing it
// costs a second look at the lines before it. While a storm is counted, a kernel
// that overwrites its ring leaves nothing to look at a second time.
const (
	notePace  = 5 * time.Second
	countPace = time.Second
)

// Source is a kernel log that can be read on from where it was left.
type Source interface {
	// Open goes to the place behind cursor (nil: the beginning of this boot).
	Open(cursor json.RawMessage, boot string) error
	// Read returns the next lines, and whether it has come to the end of what is there.
	Read(limit int) (source.Batch, error)
	// Reboot takes note of a proven reboot and returns the place to keep.
	Reboot(boot string) (json.RawMessage, error)
}

// Policy is what the operator decided.
type Policy struct {
	// Node is the name under which events are reported.
	Node string
	// Strategy of the events.
	Strategy record.Strategy
	// Settle is how long a check must be quiet after a reboot.
	Settle time.Duration
	// UserLines accepts lines that programs wrote, for injection in tests.
	UserLines bool
	// EveryEvent reports the events of a storm one by one and counts none.
	EveryEvent bool
	// LookBack is how old a fault may be that is found by a first look.
	LookBack time.Duration
	// GapStrategy is that of the events that report lost lines.
	GapStrategy record.Strategy
	// Cancels holds, by XID, the codes that its report clears on the same device.
	Cancels map[string][]string
	// Catalogue is what is known of codes and patterns.
	Catalogue catalogue.Catalogue
	// NIC names the network card at a PCI address with function, empty when it is
	// not known; nil knows none.
	NIC func(pci string) string
	// Interface names the network card of a network interface, empty when it is not
	// known; nil knows none.
	Interface func(name string) string
	// GPUs are the places of GPUs in sysfs; nil knows none.
	GPUs *GPUPlaces
}

// Monitor watches one kernel log. Its fields are set before Rounds.
type Monitor struct {
	Policy Policy
	Outbox *report.Outbox
	Source Source
	// Wake asks for a pass before the next tick; may be nil.
	Wake <-chan struct{}
	// Cleared is the file in which the node's connector lists the records that people
	// cleared.
	Cleared *connector.Clearances
	BootID  func() (string, error)
	Devices *nodefile.GPUFile
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics

	state      state
	opened     bool
	pending    []source.Line // read and not yet in the outbox
	caught     bool          // the log was read to its end since the last reboot or start
	idleSince  map[string]time.Time
	noted      time.Time
	initial    initialRead
	dirty      bool // state holds a place that is not written down
	lastReason map[string]string
	more       bool // the last pass went well and left something to do
}

// Rounds are the passes of the monitor, with which Run watches.
func (m *Monitor) Rounds() *polling.Rounds {
	return &polling.Rounds{
		Poll: func(context.Context) error {
			more, err := m.pass()
			m.more = more && err == nil
			return err
		},
		Clock: m.Clock, Log: m.Log, Fails: "kernel log watch failed, retrying", Works: "kernel log watch recovered",
		NotYet: "the kernel log has not been read yet",
		Failed: func(another bool) {
			if another {
				m.Metrics.PassErrors.Inc()
			}
		},
	}
}

// Run watches until the context ends. A failing pass is tried again at the next
// tick: the kernel log keeps what is not read.
func (m *Monitor) Run(ctx context.Context, passes *polling.Rounds) error {
	if err := m.remember(); err != nil {
		return err
	}
	tick := m.Clock.NewTicker(Tick)
	defer tick.Stop()
	for ctx.Err() == nil {
		if passes.Once(ctx); m.more {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C():
		case <-m.Wake:
		}
	}
	if m.dirty {
		return m.commit(func(*report.Tx, *state) error { return nil })
	}
	return nil
}

// remember loads the state beside the outbox.
func (m *Monitor) remember() error {
	m.idleSince, m.lastReason = map[string]time.Time{}, map[string]string{}
	data, err := m.Outbox.Note(stateNote)
	if err != nil {
		return err
	}
	if m.state, err = decodeState(data); err != nil {
		// Unreadable is no proof of anything: begin as on a first day.
		m.Log.Error("unreadable state discarded, monitoring starts with an empty state", "error", err)
		m.state = newState()
	}
	return nil
}

// pass does one round; more is true if another one should follow at once.
func (m *Monitor) pass() (more bool, err error) {
	if err := m.checkBoot(); err != nil {
		return false, err
	}
	m.checkDevices()
	if err := m.Cleared.Take(m.Log, m.forgetCleared); err != nil {
		return false, err
	}
	if err := m.forgetReplaced(); err != nil {
		return false, err
	}
	more, err = m.readOn()
	if err != nil {
		return false, err
	}
	if err := errors.Join(m.reportCounted(), m.writePlace()); err != nil {
		return false, err
	}
	return more, m.recover()
}

// checkBoot opens the source and turns to a new boot when one is proven.
func (m *Monitor) checkBoot() error {
	boot, err := m.BootID()
	if err != nil && (m.state.Boot == "" || !m.opened) {
		return fmt.Errorf("reading the boot ID: %w", err)
	}
	switch recovery.Prove(m.state.Boot, boot) {
	case recovery.Unknown, recovery.SameBoot:
		return m.openSource(m.state.Boot)
	case recovery.FirstSight:
		err := m.commit(func(_ *report.Tx, s *state) error {
			s.Boot, s.InitialRead = boot, m.Clock.Now()
			return nil
		})
		if err != nil {
			return err
		}
		m.Log.Info("node state missing: faults of this boot are reported, again if they were reported before",
			"bootID", boot, "atMostOld", m.Policy.LookBack)
		return m.openSource(boot)
	case recovery.Rebooted:
		return m.turn(boot)
	}
	return nil
}

// openSource opens the log at the place in the state; a log that is not there yet is tried
// again.
func (m *Monitor) openSource(boot string) error {
	if m.opened {
		return nil
	}
	if err := m.Source.Open(m.state.Cursor, boot); err != nil {
		return fmt.Errorf("opening the kernel log: %w", err)
	}
	m.opened = true
	m.Policy.GPUs.Refresh()
	return nil
}

// turn begins a new boot: what is read but not yet in the outbox is dropped and
// read again, the rest of the log is divided between the boots, and every check
// owes a recovery.
func (m *Monitor) turn(boot string) error {
	from := m.state.Boot
	m.opened, m.pending, m.caught = false, nil, false
	if err := m.openSource(boot); err != nil {
		return err
	}
	cursor, err := m.Source.Reboot(boot)
	if err != nil {
		m.opened = false
		return fmt.Errorf("recording a reboot: %w", err)
	}
	err = m.commit(func(tx *report.Tx, s *state) error {
		if err := m.endStorms(tx, s, ""); err != nil {
			return err
		}
		s.turn(boot, tx.LastSeq())
		s.Cursor = cursor
		return nil
	})
	if err != nil {
		m.opened = false
		return err
	}
	clear(m.idleSince)
	m.Metrics.Reboots.Inc()
	m.Log.Info("reboot detected", "from", from, "to", boot)
	return nil
}

// checkDevices follows the metadata file; without it only identity suffers.
func (m *Monitor) checkDevices() {
	changed, err := m.Devices.Refresh()
	if !changed {
		return
	}
	m.Policy.GPUs.Refresh()
	if err != nil {
		m.Metrics.MetadataErrors.Inc()
		m.Log.Warn("GPU metadata unreadable, events have no GPU index and may have no UUID", "error", err)
		return
	}
	m.Log.Info("GPU metadata read", "gpus", len(m.Devices.Inventory().ByPCI))
}

// commit changes the state, and the outbox with it, in one atomic step.
func (m *Monitor) commit(change func(tx *report.Tx, s *state) error) error {
	next := m.state.clone()
	err := m.Outbox.Write(func(tx *report.Tx) error {
		if err := change(tx, &next); err != nil {
			return err
		}
		data, err := next.encode()
		if err != nil {
			return err
		}
		return tx.SetNote(stateNote, data)
	})
	if err != nil {
		return err
	}
	m.state, m.dirty, m.noted = next, false, m.Clock.Now()
	return nil
}
