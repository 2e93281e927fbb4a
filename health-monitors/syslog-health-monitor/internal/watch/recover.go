package watch

import (
	"errors"
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/health-monitors/sighting"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/internal/report"
)

// recover takes every check that owes a recovery one step further.
func (m *Monitor) recover() error {
	for _, check := range slices.Sorted(maps.Keys(m.state.Owed)) {
		d := recovery.Decide(m.view(check), recovery.Policy{Settle: m.Policy.Settle}, m.Clock.Now())
		if err := m.step(check, d); err != nil {
			return err
		}
	}
	return nil
}

// view gathers the facts about one check.
func (m *Monitor) view(check string) recovery.View {
	first := m.Outbox.Stats().FirstSeq
	faulted, owed := m.state.Owed[check]
	return recovery.View{
		Pending:    owed,
		OldWaiting: first != 0 && first <= m.state.Through,
		CaughtUp:   m.caught,
		QuietSince: m.quiet[check],
		Faulted:    faulted,
		Uncured:    m.state.Memory[check].Withholding(),
	}
}

// step carries one decision out; the waiting ones change nothing.
func (m *Monitor) step(check string, d recovery.Decision) error {
	var err error
	switch d.Step {
	case recovery.Nothing, recovery.DeliverOld, recovery.Settle:
		if m.said[check] != string(d.Reason) {
			m.said[check] = string(d.Reason)
			m.Log.Info("recovery waits", "check", check, "reason", d.Reason)
		}
		return nil
	case recovery.Withhold:
		err = m.commit(func(_ *report.Tx, s *state) error {
			delete(s.Owed, check)
			return nil
		})
	case recovery.ReportCured:
		err = m.commit(func(tx *report.Tx, s *state) error {
			delete(s.Owed, check)
			return m.reportCured(tx, s, check)
		})
		if errors.Is(err, report.ErrFull) {
			return nil // the debt stands; asked again at the next tick
		}
	case recovery.ReportHealthy:
		err = m.commit(func(tx *report.Tx, s *state) error {
			if err := m.endStorms(tx, s, check); err != nil {
				return err
			}
			delete(s.Owed, check)
			e := sighting.Sighting{
				Node: m.Policy.Node, Boot: s.Boot, At: m.Clock.Now(),
				Strategy: s.Memory[check].Strategy(m.Policy.Strategy),
			}.Healthy(check)
			delete(s.Memory, check)
			return tx.Append(e)
		})
		if errors.Is(err, report.ErrFull) {
			return nil // the debt stands; asked again at the next tick
		}
	}
	if err != nil {
		return err
	}
	delete(m.said, check)
	m.Metrics.Recoveries.WithLabelValues(check, string(d.Reason)).Inc()
	m.Log.Info("recovery was settled", "check", check, "step", d.Step, "reason", d.Reason,
		"withheldFor", m.state.Memory[check].Withholding())
	return nil
}
