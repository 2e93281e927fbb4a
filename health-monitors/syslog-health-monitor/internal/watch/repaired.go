package watch

import (
	"errors"
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/health-monitors/internal/clearance"
	"github.com/nvidia/nvsentinel/health-monitors/internal/gpumetadata"
	"github.com/nvidia/nvsentinel/health-monitors/sighting"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/internal/report"
)

// reportCured reports by name what a reboot ended of a check, and forgets it;
// what no reboot cures stays remembered and open.
func (m *Monitor) reportCured(tx *report.Tx, s *state, check string) error {
	cured := s.Memory[check].Cured()
	for _, device := range slices.Sorted(maps.Keys(cured)) {
		e := sighting.Sighting{
			Node: m.Policy.Node, Boot: s.Boot, At: m.Clock.Now(), Strategy: s.Memory[check].Strategy(m.Policy.Strategy),
		}.Healthy(check)
		e.ErrorCode, e.EntitiesImpacted = cured[device], sighting.Entities(s.Memory[check].Devices[device].Names...)
		e.Message = "Cured by a reboot"
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
			e := sighting.Sighting{
				Node: m.Policy.Node, Boot: s.Boot, At: m.Clock.Now(), Strategy: memory.Strategy(m.Policy.Strategy),
			}.Healthy(check)
			e.ErrorCode, e.EntitiesImpacted = memory.Codes(device), sighting.Entities([2]string{"GPU_UUID", uuid})
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
		m.Log.Info("faults of replaced GPUs are over", "gpus", slices.Sorted(maps.Values(gone)))
	}
	return err
}

// replaced tells whether the place of a GPU has another one now.
func replaced(d recovery.Device, pci string, inv gpumetadata.Inventory) bool {
	now, listed := inv.ByPCI[pci]
	_, elsewhere := inv.ByUUID(d.UUID)
	return d.UUID != "" && listed && now.UUID != d.UUID && !elsewhere
}

// forgetCleared forgets faults that a person cleared, given by the ids of their
// records, as the node's connector tells; their recovery went to the store past this
// monitor.
func (m *Monitor) forgetCleared(ids clearance.IDs) error {
	next, found := m.state.clone(), false
	for _, check := range slices.Sorted(maps.Keys(next.Memory)) {
		memory := next.Memory[check]
		if codes := memory.Clear(ids.Any); len(codes) > 0 {
			next.Memory[check], found = memory, true
			m.Log.Info("faults that a person cleared are forgotten", "check", check, "codes", codes)
		}
	}
	if !found {
		return nil
	}
	return m.commit(func(_ *report.Tx, s *state) error { s.Memory = next.Memory; return nil })
}
