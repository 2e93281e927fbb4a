// Package watch is the loop of the GPU health monitor: it polls DCGM, evaluates the result,
// and puts the events into the outbox in one step with what is open now.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/check"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/internal/polling"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/report"
)

// stateNote is the name of the state beside the outbox.
const stateNote = "state"

// Which XIDs a look asks for.
const (
	// LookBack is how far it goes back: XIDs bear the kernel's time, and are appended
	// minutes later where the driver hung.
	LookBack = time.Hour
	// most is how many may come of it. After more, looks go back to overlap before that
	// one, and again to LookBack as time passes.
	most    = 1024
	overlap = 10 * time.Second
	// Remember is how long a reported XID is remembered.
	Remember = 2 * LookBack
)

// DCGM takes looks. An error is a *reading.Failure.
type DCGM interface {
	Poll(ctx context.Context, since time.Time) (r reading.Reading, connected time.Time, err error)
	Close()
}

// Monitor watches the GPUs of one node. Its fields are set before Rounds.
type Monitor struct {
	Policy   check.Policy
	Interval time.Duration
	DCGM     DCGM
	Outbox   *report.Outbox
	BootID   func() (string, error)
	// Cleared has the records that people cleared.
	Cleared *connector.Clearances
	Devices *nodefile.GPUFile
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics

	state     check.State
	memory    check.Memory
	next      time.Time // the end of the last look for XIDs, by the host engine's clock
	notBefore time.Time // none before this are asked for
	// refused are the watches that DCGM refused, as they were logged last.
	refused []reading.Refusal
}

// Rounds are the polls of the monitor, with which Run watches. Faults are level-triggered:
// a poll that is lost loses nothing.
func (m *Monitor) Rounds() *polling.Rounds {
	return &polling.Rounds{
		Poll: m.poll, Interval: m.Interval, Clock: m.Clock, Log: m.Log, NotYet: "DCGM has not responded yet",
		Fails: "DCGM poll failed, no fault is reported as recovered", Works: "DCGM poll recovered",
	}
}

// Run watches until the context ends.
func (m *Monitor) Run(ctx context.Context, looks *polling.Rounds) error {
	defer m.DCGM.Close()
	if err := m.remember(); err != nil {
		return err
	}
	return looks.Run(ctx)
}

// remember loads the state beside the outbox.
func (m *Monitor) remember() error {
	m.memory, m.next = check.NewMemory(), m.Clock.Now()
	data, err := m.Outbox.Note(stateNote)
	if err != nil {
		return err
	}
	if m.state, err = check.DecodeState(data); err != nil {
		// Open faults are not known any more: those that still are there are reported
		// again, and the end of the others is not reported.
		m.Log.Error("unreadable state discarded, monitoring starts with an empty state", "error", err)
		m.state, err = check.DecodeState(nil)
	}
	m.Metrics.show(m.state)
	return err
}

// poll takes one look, decides and writes.
func (m *Monitor) poll(ctx context.Context) error {
	m.checkDevices()
	if err := m.Cleared.Take(m.Log, m.forget); err != nil {
		return err
	}
	boot, err := m.BootID()
	if err != nil {
		m.Log.Debug("boot ID read failed", "error", err)
		boot = ""
	}
	v := check.View{Boot: boot, Inventory: m.Devices.Inventory()}
	r, connected, failed := m.DCGM.Poll(ctx, m.since())
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the monitor ends; what the look failed with says nothing
	}
	v.Now, v.Connected = m.Clock.Now(), connected
	if failed == nil {
		v.Reading = &r
	} else if !errors.As(failed, &v.Failure) {
		v.Failure = &reading.Failure{Trouble: reading.Unreachable, Operation: "poll", Text: failed.Error()}
	}
	crashpoint.Here(check.Agent + "/looked")
	out := check.Decide(m.state, m.memory, v, m.Policy)
	if err := m.write(out); err != nil {
		return errors.Join(failed, err)
	}
	m.state, m.memory = out.State, out.Memory
	if r.Next > 0 {
		m.next = time.UnixMicro(r.Next)
	}
	if len(r.XIDs) > most {
		m.notBefore = m.next.Add(-overlap)
	}
	m.record(out, v)
	if out.Unreadable {
		return &reading.Failure{Trouble: reading.Unreadable, Operation: "EntitiesGetLatestValues", Text: check.TextUnreadable}
	}
	return failed
}

// since is when the XIDs begin that a look asks for.
func (m *Monitor) since() time.Time {
	if since := m.next.Add(-LookBack); since.After(m.notBefore) {
		return since
	}
	return m.notBefore
}

// write puts the events and the state on the disk; when it fails, the look was not
// taken.
func (m *Monitor) write(out check.Outcome) error {
	if !out.Changed {
		return nil
	}
	err := m.Outbox.Write(func(tx *report.Tx) error {
		for _, reported := range out.Reports {
			if err := tx.Append(reported.Event); err != nil {
				return fmt.Errorf("reporting %s %v: %w", reported.Event.CheckName, reported.Event.ErrorCode, err)
			}
			out.State.Name(reported.Key, reported.Event.GetId())
		}
		data, err := out.State.Encode()
		if err != nil {
			return err
		}
		return tx.SetNote(stateNote, data)
	})
	if err == nil {
		crashpoint.Here(check.Agent + "/outboxed")
	}
	return err
}

// forget drops what people cleared, given by the ids of its events.
func (m *Monitor) forget(ids connector.ClearedIDs) error {
	next := check.Outcome{State: m.state.Clone(), Changed: true}
	gone := next.State.Clear(ids.Any)
	if len(gone) == 0 {
		return nil
	}
	if err := m.write(next); err != nil {
		return err
	}
	m.state = next.State
	m.Log.Info("manually cleared faults removed", "faults", gone)
	return nil
}

// record logs and counts what a look came to.
func (m *Monitor) record(out check.Outcome, v check.View) {
	for _, reported := range out.Reports {
		m.Log.Info("fault reported", "check", reported.Event.CheckName, "code", reported.Event.ErrorCode, "healthy", reported.Event.IsHealthy,
			"fatal", reported.Event.IsFatal, "reason", reported.Reason, "strategy", reported.Event.ProcessingStrategy, "message", reported.Event.Message)
	}
	m.Metrics.count(out, v)
	if v.Reading != nil && !slices.Equal(m.refused, v.Reading.Refusals) {
		m.refusals(v.Reading.Refusals)
	}
}

// refusals logs which watches DCGM refuses, when that changes.
func (m *Monitor) refusals(all []reading.Refusal) {
	if m.refused = all; len(all) == 0 {
		m.Log.Info("DCGM watches accepted again")
		return
	}
	var entities []string
	for _, x := range all {
		entities = append(entities, fmt.Sprintf("%s=%d", x.Entity.Kind, x.Entity.ID))
	}
	m.Log.Warn("DCGM watches refused: faults of these GPUs and XIDs of these MIG instances are not detected, "+
		"and faults of these NVSwitches do not end before the node restarts",
		"entities", entities, "error", all[0].Text)
}

// checkDevices follows the metadata file; without it only names suffer.
func (m *Monitor) checkDevices() {
	changed, err := m.Devices.Refresh()
	switch {
	case changed && err != nil:
		m.Metrics.MetadataErrors.Inc()
		m.Log.Warn("GPU metadata unreadable, thermal margins and NVLink counts of the GPUs are unknown", "error", err)
	case changed:
		m.Log.Info("GPU metadata read", "gpus", len(m.Devices.Inventory().ByPCI))
	}
}
