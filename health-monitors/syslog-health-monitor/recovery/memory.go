package recovery

import (
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Bounds of a memory. A node has some twenty devices and the catalogues some
// hundred codes that matter; what a kernel reports beyond that belongs to no device.
const (
	maxDevices = 256
	maxCodes   = 256
)

// Memory is what a check has reported since its last healthy event. It is kept
// beside the outbox, so that the decision rests on durable facts.
type Memory struct {
	// Process and PersistOnly are the strategies under which it reported.
	Process     bool `json:"process,omitempty"`
	PersistOnly bool `json:"persistOnly,omitempty"`
	// Faults holds, by device and code, what a later decision asks about.
	Faults map[string]map[string]Fault `json:"faults,omitempty"`
	// Devices holds, by device, what a recovery names it by.
	Devices map[string]Device `json:"devices,omitempty"`
}

// Device is what a recovery names a device by.
type Device struct {
	// UUID of a GPU, empty for other things and while it is unknown.
	UUID string `json:"uuid,omitempty"`
	// Names are pairs of entity type and value.
	Names [][2]string `json:"names,omitempty"`
}

// Fault is what is remembered of the reports of one code about one device.
type Fault struct {
	// Process is true if one of them was made under PROCESS.
	Process bool `json:"process,omitempty"`
	// Uncured is true if one of them outlives a reboot, Unreset if one outlives a reset of
	// the device.
	Uncured bool `json:"uncured,omitempty"`
	Unreset bool `json:"unreset,omitempty"`
	// IDs are the first and the newest events of a fault that outlives a reboot,
	// by which a person may name it.
	IDs []string `json:"ids,omitempty"`
}

// Report is one unhealthy event as far as a recovery cares.
type Report struct {
	// Device is the PCI address of the device.
	Device string
	// Named is what a recovery names it by.
	Named Device
	// ID is that of the event.
	ID       string
	Code     string
	Strategy record.Strategy
	Fatal    bool
	// RebootCures is false for a fault that outlives a reboot.
	RebootCures bool
	// ResetCures is true for what a reset of the device ends.
	ResetCures bool
}

// maxIDs bounds the events that are remembered of a fault.
const maxIDs = 16

// Add remembers a report. At the bound of codes, only a fault that no reboot
// cures is kept.
func (m *Memory) Add(r Report) {
	process := r.Strategy == record.Process
	m.Process = m.Process || process
	m.PersistOnly = m.PersistOnly || !process
	uncured := r.Fatal && !r.RebootCures
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
	m.name(device, r.Named)
	if uncured && r.ID != "" {
		if len(f.IDs) >= maxIDs {
			f.IDs = slices.Delete(slices.Clone(f.IDs), 1, 2)
		}
		f.IDs = append(slices.Clip(f.IDs), r.ID)
	}
	f.Process = f.Process || process
	f.Uncured = f.Uncured || uncured
	f.Unreset = f.Unreset || !r.ResetCures
	m.Faults[device][r.Code] = f
}

// name remembers what a recovery names a device by: what is known of its UUID is kept while
// the file that lists it is missing.
func (m *Memory) name(device string, d Device) {
	if device == "" || d.UUID == "" && m.Devices[device].UUID != "" {
		return
	}
	if m.Devices == nil {
		m.Devices = map[string]Device{}
	}
	m.Devices[device] = d
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

// Withholding lists the codes that forbid the healthy event of the whole check,
// sorted; what a reboot cured beside them is reported by name. A fault
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
		delete(m.Devices, device)
	}
}

// Cured lists, by device that can be named, the codes that a reboot ends, sorted.
func (m Memory) Cured() map[string][]string {
	out := map[string][]string{}
	for device, faults := range m.Faults {
		for code, f := range faults {
			if !f.Uncured && len(m.Devices[device].Names) > 0 {
				out[device] = append(out[device], code)
			}
		}
		slices.Sort(out[device])
	}
	maps.DeleteFunc(out, func(_ string, codes []string) bool { return len(codes) == 0 })
	return out
}

// Clear drops the faults that were cleared, by the ids of their events, and lists their
// codes.
func (m *Memory) Clear(cleared func(ids []string) bool) []string {
	var codes []string
	for device, faults := range m.Faults {
		for code, f := range faults {
			if cleared(f.IDs) {
				m.Forget(device, []string{code})
				codes = append(codes, code)
			}
		}
	}
	slices.Sort(codes)
	return codes
}

// Codes lists what is remembered of a device, sorted.
func (m Memory) Codes(device string) []string {
	return slices.Sorted(maps.Keys(m.Faults[device]))
}

// Clone copies the memory.
func (m Memory) Clone() Memory {
	m.Faults, m.Devices = maps.Clone(m.Faults), maps.Clone(m.Devices)
	for device, faults := range m.Faults {
		m.Faults[device] = maps.Clone(faults)
	}
	return m
}
