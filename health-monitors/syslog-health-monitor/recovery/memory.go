package recovery

import (
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Bounds of a memory. A node has some twenty devices and the catalogues some
// hundred codes that matter; what a kernel says beyond that belongs to no device.
const (
	maxDevices = 256
	maxCodes   = 256
)

// Memory is what a check has reported since its last healthy event. It is kept
// beside the outbox, so that the decision rests on durable facts.
type Memory struct {
	// Process and PersistOnly tell under which strategies it reported.
	Process     bool `json:"process,omitempty"`
	PersistOnly bool `json:"persistOnly,omitempty"`
	// Faults holds, by device and code, what a later decision asks about.
	Faults map[string]map[string]Fault `json:"faults,omitempty"`
}

// Fault is what is remembered of the reports of one code about one device.
type Fault struct {
	// Process says whether one of them was made under PROCESS.
	Process bool `json:"process,omitempty"`
	// Uncured says that one of them outlives a reboot, Unreset that one outlives a
	// reset of the device.
	Uncured bool `json:"uncured,omitempty"`
	Unreset bool `json:"unreset,omitempty"`
}

// Report is one unhealthy event as far as a recovery cares.
type Report struct {
	// Device is the PCI address of the device.
	Device   string
	Code     string
	Strategy record.Strategy
	Fatal    bool
	// RebootCures is false for a fault that outlives a reboot.
	RebootCures bool
	// ResetCures is true for what a reset of the device ends.
	ResetCures bool
}

// Add remembers a report. Harmless codes that no reset clears are not kept.
func (m *Memory) Add(r Report) {
	process := r.Strategy == record.Process
	m.Process = m.Process || process
	m.PersistOnly = m.PersistOnly || !process
	uncured := r.Fatal && !r.RebootCures
	if !r.Fatal && !r.ResetCures {
		return
	}
	if m.Faults == nil {
		m.Faults = map[string]map[string]Fault{}
	}
	device := r.Device
	if _, known := m.Faults[device]; !known && len(m.Faults) >= maxDevices {
		device = ""
	}
	if m.Faults[device] == nil {
		m.Faults[device] = map[string]Fault{}
	}
	f, known := m.Faults[device][r.Code]
	if !known && len(m.Faults[device]) >= maxCodes && !uncured {
		return
	}
	f.Process = f.Process || process
	f.Uncured = f.Uncured || uncured
	f.Unreset = f.Unreset || !r.ResetCures
	m.Faults[device][r.Code] = f
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
	codes := map[string]bool{}
	for _, faults := range m.Faults {
		for code, f := range faults {
			if f.Uncured && (f.Process || !m.Process) {
				codes[code] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(codes))
}

// AfterReset lists the codes that a reset of the device clears, sorted: those
// that the reset of any device does, and those remembered of this one.
func (m Memory) AfterReset(device string, always []string) []string {
	codes := map[string]bool{}
	for _, code := range always {
		codes[code] = true
	}
	for code, f := range m.Faults[device] {
		codes[code] = !f.Unreset
	}
	maps.DeleteFunc(codes, func(_ string, clears bool) bool { return !clears })
	return slices.Sorted(maps.Keys(codes))
}

// Forget drops codes of a device that have been cleared.
func (m *Memory) Forget(device string, codes []string) {
	for _, code := range codes {
		delete(m.Faults[device], code)
	}
	if len(m.Faults[device]) == 0 {
		delete(m.Faults, device)
	}
}

// Clone copies the memory.
func (m Memory) Clone() Memory {
	m.Faults = maps.Clone(m.Faults)
	for device, faults := range m.Faults {
		m.Faults[device] = maps.Clone(faults)
	}
	return m
}
