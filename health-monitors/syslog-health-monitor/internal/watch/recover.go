package watch

import (
	"errors"
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/location"
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
		IdleSince:  m.idleSince[check],
		Faulted:    faulted,
		Uncured:    m.state.Memory[check].Withholding(),
	}
}

// step carries one decision out; the waiting ones change nothing.
func (m *Monitor) step(check string, d recovery.Decision) error {
	var err error
	switch d.Step {
	case recovery.Nothing, recovery.DeliverOld, recovery.Settle:
		if m.lastReason[check] != string(d.Reason) {
			m.lastReason[check] = string(d.Reason)
			m.Log.Info("recovery pending", "check", check, "reason", d.Reason)
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
			e := location.Sighting{
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
	delete(m.lastReason, check)
	m.Metrics.Recoveries.WithLabelValues(check, string(d.Reason)).Inc()
	m.Log.Info("recovery completed", "check", check, "step", d.Step, "reason", d.Reason,
		"withheldFor", m.state.Memory[check].Withholding())
	return nil
}

// reportCured reports by name what a reboot ended of a check, and forgets it;
// what no reboot cures stays remembered and open.
func (m *Monitor) reportCured(tx *report.Tx, s *state, check string) error {
	cured := s.Memory[check].Cured()
	for _, device := range slices.Sorted(maps.Keys(cured)) {
		e := location.Sighting{
			Node: m.Policy.Node, Boot: s.Boot, At: m.Clock.Now(), Strategy: s.Memory[check].Strategy(m.Policy.Strategy),
		}.Healthy(check)
		e.ErrorCode, e.EntitiesImpacted = cured[device], location.Entities(s.Memory[check].Devices[device].Names...)
		e.Message = "Recovered by a reboot"
		if err := tx.Append(e); err != nil {
			return err
		}
		s.forget(check, device, cured[device])
	}
	return nil
}

// forgetReplaced ends the faults of GPUs whose place has another GPU now: the
// metadata file lists the place with another UUID, and the old one nowhere.
func (m *Monitor) forgetReplaced() error {
	gone := map[[2]string]string{} // UUID by check and device
	for check, memory := range m.state.Memory {
		for device, d := range memory.Devices {
			if replaced(d, device, m.Devices.Inventory()) {
				gone[[2]string{check, device}] = d.UUID
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	err := m.commit(func(tx *report.Tx, s *state) error {
		for key, uuid := range gone {
			check, device := key[0], key[1]
			memory := s.Memory[check]
			e := location.Sighting{
				Node: m.Policy.Node, Boot: s.Boot, At: m.Clock.Now(), Strategy: memory.Strategy(m.Policy.Strategy),
			}.Healthy(check)
			e.ErrorCode, e.EntitiesImpacted = memory.Codes(device), location.Entities([2]string{"GPU_UUID", uuid})
			e.Message = "The GPU was replaced"
			if err := tx.Append(e); err != nil {
				return err
			}
			s.forget(check, device, e.ErrorCode)
		}
		return nil
	})
	if errors.Is(err, report.ErrFull) {
		return nil // asked again at the next pass
	}
	if err == nil {
		m.Log.Info("faults of replaced GPUs ended", "gpus", slices.Sorted(maps.Values(gone)))
	}
	return err
}

// replaced reports whether another GPU has the place of a GPU now.
func replaced(d recovery.Device, pci string, inv nodefile.Inventory) bool {
	now, listed := inv.ByPCI[pci]
	_, elsewhere := inv.ByUUID(d.UUID)
	return d.UUID != "" && listed && now.UUID != d.UUID && !elsewhere
}

// forgetCleared forgets faults that a person cleared, given by the ids of their records, as
// the node's connector lists them; their recovery went to the store past this monitor.
func (m *Monitor) forgetCleared(ids connector.ClearedIDs) error {
	next, found := m.state.clone(), false
	for _, check := range slices.Sorted(maps.Keys(next.Memory)) {
		memory := next.Memory[check]
		if codes := memory.Clear(ids.Any); len(codes) > 0 {
			next.Memory[check], found = memory, true
			m.Log.Info("manually cleared faults removed", "check", check, "codes", codes)
		}
	}
	if !found {
		return nil
	}
	return m.commit(func(_ *report.Tx, s *state) error { s.Memory = next.Memory; return nil })
}
