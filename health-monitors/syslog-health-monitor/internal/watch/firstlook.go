package watch

import (
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
)

// MetadataFirstLook marks a fault that was written before the monitor had ever
// looked, or after it had forgotten that it did: it may be known, and repaired.
const MetadataFirstLook = "firstLook"

// firstLook counts what a first look back finds.
type firstLook struct{ reported, tooOld int }

// tooOld says whether a line is of so long before the first look that it makes no
// event. What it tells is remembered all the same: it may have been reported
// before the state was lost, and what a reboot cures of it asks for that.
func (b *batch) tooOld(line source.Line) bool {
	began := b.s.FirstLook
	return !began.IsZero() && !line.At.IsZero() && line.At.Before(began.Add(-b.m.Policy.LookBack))
}

// mark marks an event about a line of before the first look.
func (b *batch) mark(line source.Line, e *protos.HealthEvent) {
	if began := b.s.FirstLook; !began.IsZero() && !line.At.After(began) {
		e.Metadata[MetadataFirstLook] = "true"
		b.look.reported++
	}
}

// endFirstLook says what a first look has found; what comes now is new.
func (m *Monitor) endFirstLook() {
	if m.state.FirstLook.IsZero() {
		return
	}
	m.Log.Info("the log was looked at for the first time", "since", m.state.FirstLook.Add(-m.Policy.LookBack),
		"faults", m.look.reported, "olderFaultsLeftOut", m.look.tooOld)
	m.state.FirstLook, m.dirty = time.Time{}, true
}
