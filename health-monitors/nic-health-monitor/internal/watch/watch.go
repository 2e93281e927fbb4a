// Package watch is the loop of the NIC health monitor: it reads the cards, evaluates the
// reading, and puts the reports into the outbox together with the memory of them.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/internal/polling"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/evaluation"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/sysfs"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/report"
)

// memoryNote is the name of the memory beside the outbox.
const memoryNote = "memory"

// notePace is how often counters are written down while nothing is reported. What a
// crash loses of them is looked at again from the value before.
const notePace = time.Minute

// pollTimeout is how long a poll may take: a card whose firmware hangs blocks every reader
// of its state or counters.
const pollTimeout = time.Minute

// Cards is where the facts come from: sysfs.Tree.
type Cards interface {
	Read(boot string, now time.Time) (evaluation.Reading, sysfs.Stats, error)
}

// Monitor watches the cards of one node. Its fields are set before Rounds.
type Monitor struct {
	// Node is the name under which events are reported.
	Node   string
	Policy evaluation.Policy
	// Interval is the time from look to look.
	Interval time.Duration
	Cards    Cards
	Outbox   *report.Outbox
	BootID   func() (string, error)
	// Cleared returns the records that people cleared.
	Cleared *connector.Clearances
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics

	memory evaluation.Memory
	noted  time.Time
}

// Rounds are the looks of the monitor, with which Run watches. A failing look begins
// nothing and ends nothing.
func (m *Monitor) Rounds() *polling.Rounds {
	return &polling.Rounds{
		Poll: m.poll, Interval: m.Interval, Longest: pollTimeout, Clock: m.Clock, Log: m.Log, NotYet: "the cards have not been polled yet",
		Fails: "poll of the cards failed, no changes are reported", Works: "poll of the cards recovered",
		Failed: func(another bool) {
			if another {
				m.Metrics.PollErrors.Inc()
			}
		},
	}
}

// Run looks until the context ends.
func (m *Monitor) Run(ctx context.Context, looks *polling.Rounds) error {
	if err := m.remember(); err != nil {
		return err
	}
	return errors.Join(looks.Run(ctx), m.commit(m.memory, nil))
}

// remember loads the memory beside the outbox.
func (m *Monitor) remember() error {
	data, err := m.Outbox.Note(memoryNote)
	if err != nil {
		return err
	}
	if m.memory, err = evaluation.Decode(data); err != nil {
		// Unreadable is no proof of anything: begin as on a first day.
		m.Log.Error("unreadable state discarded, monitoring starts with an empty state", "error", err)
		m.memory, err = evaluation.Decode(nil)
	}
	return err
}

// poll does one round.
func (m *Monitor) poll(context.Context) error {
	begun := m.Clock.Now()
	boot, err := m.BootID()
	if err != nil {
		return fmt.Errorf("reading the boot ID: %w", err)
	}
	if err := m.Cleared.Take(m.Log, m.forget); err != nil {
		return err
	}
	reading, stats, err := m.Cards.Read(boot, begun)
	if err != nil {
		return err
	}
	m.Metrics.observePoll(reading, stats, m.Clock.Since(begun))
	next, reported := evaluation.Evaluate(m.memory, reading, m.Policy)
	if len(reported) == 0 && !next.ChangedSince(m.memory) && begun.Sub(m.noted) < notePace {
		m.memory = next
		return nil
	}
	err = m.commit(next, reported)
	if errors.Is(err, report.ErrFull) {
		return fmt.Errorf("reporting %d changes: %w", len(reported), err) // the memory stands: evaluated again at the next look
	}
	return err
}

// commit makes the memory and its reports durable in one step.
func (m *Monitor) commit(next evaluation.Memory, reported []evaluation.Report) error {
	now := m.Clock.Now()
	if len(reported) > 0 {
		crashpoint.Here(evaluation.Agent + "/judged")
	}
	err := m.Outbox.Write(func(tx *report.Tx) error {
		for _, t := range reported {
			e := t.Event(m.Node, next.Boot, now)
			if err := tx.Append(e); err != nil {
				return err
			}
			next.Name(t.Key, e.Id)
		}
		data, err := next.Encode()
		if err != nil {
			return err
		}
		return tx.SetNote(memoryNote, data)
	})
	if err != nil {
		return err
	}
	if len(reported) > 0 {
		crashpoint.Here(evaluation.Agent + "/outboxed")
	}
	m.memory, m.noted = next, now
	for _, t := range reported {
		m.Metrics.Reported.WithLabelValues(t.Key.Check, string(t.Reason)).Inc()
		m.Log.Info("event reported", "reason", t.Reason, "check", t.Key.Check, "nic", t.Key.Device, "port", t.Key.Port, "code", t.Key.Code,
			"fatal", t.Fatal, "message", t.Message)
	}
	m.Metrics.open(next)
	return nil
}

// forget drops what people cleared, given by the ids of its events.
func (m *Monitor) forget(ids connector.ClearedIDs) error {
	next := m.memory.Clone()
	gone := next.Forget(ids.Any)
	if len(gone) == 0 {
		return nil
	}
	m.Log.Info("manually cleared faults removed", "faults", gone)
	return m.commit(next, nil)
}

// Prefix begins the names of this monitor's own metrics; the others are the earlier NVSentinel's.
const Prefix = "nvsentinel_nic_monitor"

// Metrics of the watch.
type Metrics struct {
	// Reported counts reported events, by check and reason.
	Reported *prometheus.CounterVec
	// Devices is the number of watched cards, Open that of open faults.
	Devices, Open prometheus.Gauge
	// PollErrors counts different failures of consecutive polls, Unreadable polls of ports
	// whose state could not be read.
	PollErrors, Unreadable prometheus.Counter
	// PollDuration measures the duration of a poll, in seconds.
	PollDuration prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Reported: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_nic_monitor_events_total", Help: "Events added to the outbox, by check and reason.",
		}, []string{"check", "reason"}),
		Devices: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nic_health_monitor_devices_discovered", Help: "Network cards that the last poll found and that are monitored.",
		}),
		Open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_nic_monitor_open_faults", Help: "Faults that were reported and are still open.",
		}),
		PollErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nic_health_monitor_state_check_errors_total", Help: "Polls of the network cards that failed.",
		}),
		Unreadable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_nic_monitor_unreadable_ports_total", Help: "Polls of a port or card whose state could not be read.",
		}),
		PollDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nic_health_monitor_poll_cycle_duration_seconds", Help: "Duration of one poll of all network cards in seconds.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5},
		}),
	}
	for _, check := range evaluation.Checks() {
		m.Reported.WithLabelValues(check, string(evaluation.Began))
	}
	r.MustRegister(m.Reported, m.Devices, m.Open, m.PollErrors, m.Unreadable, m.PollDuration)
	return m
}

func (m *Metrics) observePoll(r evaluation.Reading, s sysfs.Stats, took time.Duration) {
	m.Devices.Set(float64(len(r.Devices)))
	m.Unreadable.Add(float64(s.Unreadable))
	m.PollDuration.Observe(took.Seconds())
}

func (m *Metrics) open(memory evaluation.Memory) { m.Open.Set(float64(len(memory.Open))) }
