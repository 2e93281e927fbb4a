package recovery

import (
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Memory is what a check has reported since its last healthy event. It is kept
// beside the outbox, so that the decision rests on durable facts.
type Memory struct {
	// Process and PersistOnly tell under which strategies it reported.
	Process     bool `json:"process,omitempty"`
	PersistOnly bool `json:"persistOnly,omitempty"`
	// Uncured holds, by code, the faults that no reboot cures; the value says
	// whether one of them was reported under PROCESS.
	Uncured map[string]bool `json:"uncured,omitempty"`
}

// Report is one unhealthy event as far as a recovery cares.
type Report struct {
	Code     string
	Strategy record.Strategy
	Fatal    bool
	// RebootCures is false for a fault that outlives a reboot.
	RebootCures bool
}

// Add remembers a report.
func (m *Memory) Add(r Report) {
	process := r.Strategy == record.Process
	m.Process = m.Process || process
	m.PersistOnly = m.PersistOnly || !process
	if !r.Fatal || r.RebootCures {
		return
	}
	if m.Uncured == nil {
		m.Uncured = map[string]bool{}
	}
	m.Uncured[r.Code] = m.Uncured[r.Code] || process
}

// Strategy is what the healthy event must carry: PROCESS if any report it
// clears did, PERSIST_ONLY if all were that, the configured one without reports.
func (m Memory) Strategy(configured record.Strategy) record.Strategy {
	switch {
	case m.Process:
		return record.Process
	case m.PersistOnly:
		return record.PersistOnly
	}
	return configured
}

// Withholding lists the codes that forbid the healthy event, sorted. A fault
// that was only observed (PERSIST_ONLY) holds no node and does not keep the
// recovery of a PROCESS fault back.
func (m Memory) Withholding() []string {
	var codes []string
	for _, code := range slices.Sorted(maps.Keys(m.Uncured)) {
		if m.Uncured[code] || !m.Process {
			codes = append(codes, code)
		}
	}
	return codes
}

// Clone copies the memory.
func (m Memory) Clone() Memory {
	m.Uncured = maps.Clone(m.Uncured)
	return m
}
