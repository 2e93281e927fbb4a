package check

import (
	"slices"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

func switchKey(id uint) string { return entityKey(reading.Entity{Kind: reading.Switch, ID: id}) }

// watchedSwitch is the NVSwitch of a fault in a reading; nil where it is not watched. When one
// is gone, the others may have other numbers: then none is that of the fault. False is a fault
// of no switch.
func watchedSwitch(f Fault, r reading.Reading) (x *reading.NVSwitch, ofSwitch bool) {
	of := f.Entity
	if of.Kind == reading.Link {
		of, _ = of.Link()
	}
	if of.Kind != reading.Switch {
		return nil, false
	}
	i := slices.IndexFunc(r.Switches, func(x reading.NVSwitch) bool { return x.ID == of.ID })
	if i < 0 || len(r.Switches) < f.Switches {
		return nil, true
	}
	return &r.Switches[i], true
}

// erring reports whether the newest sample of an NVSwitch has the error of a fault, or says that
// it cannot be read. It bears the time of the error, however long ago that was.
func erring(f Fault, x reading.NVSwitch) bool {
	field, ok := reading.OfSwitch(f.Code)
	s, sampled := x.Samples[field]
	return ok && sampled && (s.Blank || s.Value != 0)
}

// seesSwitch reports whether DCGM could show a fault of an NVSwitch: it reads the switch, which
// needs no reset, and does not have the error.
func (d *deciding) seesSwitch(f Fault, x *reading.NVSwitch) bool {
	return x != nil && !erring(f, *x) && x.Samples[reading.FieldSwitchReset].Value == 0 &&
		d.settled(switchKey(x.ID), reading.FieldSwitchReset)
}

// restarted reports whether only another boot can say that a fault of an NVSwitch is over: DCGM
// watches the switch and has no sample by which the fault would end.
func (d *deciding) restarted(f Fault, r reading.Reading, good map[string]bool) bool {
	x, ofSwitch := watchedSwitch(f, r)
	if !ofSwitch || x == nil || !d.past(f) || !complete(f, r, good) {
		return false
	}
	_, sampled := x.Samples[reading.FieldSwitchReset]
	return !sampled && !erring(f, *x)
}
