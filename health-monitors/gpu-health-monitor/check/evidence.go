package check

import (
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// How old the newest sample of a value may be to count. DCGM's health check samples every
// 30 s and evaluates the samples of the last minute: it drops an incident when they are
// older. The inforom is sampled once an hour.
const (
	recent       = time.Minute
	recentHourly = 2 * time.Hour
	// ahead is how far in the future of the host engine's clock a timestamp may be.
	ahead = time.Second
)

// sample is a value of a GPU, or of an NVSwitch.
type sample struct {
	of    string
	field reading.Field
}

// isRecent reports whether a GPU's value can be read and its newest sample is recent, by the
// host engine's clock.
func isRecent(x reading.Device, field reading.Field, now int64) bool {
	at, readable := x.Samples[field]
	most := recent
	if field == reading.FieldInforomValid {
		most = recentHourly
	}
	return readable && isYounger(at, most, now)
}

// isYounger reports whether a timestamp is younger than some time, by the host engine's clock.
func isYounger(at int64, most time.Duration, now int64) bool {
	age := time.Duration(now-at) * time.Microsecond
	return age < most && age > -ahead
}

// healthSupported reports whether DCGM can determine the health of a GPU.
func healthSupported(x reading.Device) bool { return x.Status.Good() && !x.Unwatched }

// unreadable reports whether DCGM answers, and has a recent name of none of the GPUs whose
// health it should report: as after XID 119, or while the driver hangs.
func unreadable(r reading.Reading) bool {
	none := false
	for _, x := range r.Devices {
		if healthSupported(x) && isRecent(x, reading.FieldUUID, r.Next) {
			return false
		}
		none = none || healthSupported(x)
	}
	return none
}

// freshen remembers since when each look had a recent sample of a value. A connection
// begins with new samples of all of them.
func (d *deciding) freshen(r reading.Reading) {
	reconnected := !d.Memory.connected.Equal(d.v.Connected)
	fresh := map[sample]time.Time{}
	take := func(key sample) {
		since, before := d.Memory.fresh[key]
		switch {
		case reconnected:
			since = d.v.Connected
		case !before:
			since = d.v.Now
		}
		fresh[key] = since
	}
	for _, x := range r.Devices {
		for field := range x.Samples {
			if healthSupported(x) && isRecent(x, field, r.Next) {
				take(sample{gpuOf(x), field})
			}
		}
	}
	for _, x := range r.Switches {
		if s, ok := x.Samples[reading.FieldSwitchReset]; ok && !s.Blank && isYounger(s.At, recent, r.Next) {
			take(sample{switchKey(x.ID), reading.FieldSwitchReset})
		}
	}
	d.Memory.fresh, d.Memory.connected = fresh, d.v.Connected
}

// settled reports whether a value of a GPU has had recent samples for as long as the health
// check looks back: one that was blank before may hide what the next one shows.
func (d *deciding) settled(of string, field reading.Field) bool {
	since, ok := d.Memory.fresh[sample{of, field}]
	return ok && d.v.Now.Sub(since) >= d.p.Settle
}

// gpuOf is what a GPU of a reading is known by: its UUID, or its number without one.
func gpuOf(x reading.Device) string {
	if x.UUID != "" {
		return x.UUID
	}
	return entityKey(reading.Entity{Kind: reading.GPU, ID: x.ID})
}

// well are the GPUs of which DCGM can determine the health, by UUID.
func (d *deciding) well(r reading.Reading) map[string]bool {
	good := map[string]bool{}
	for _, x := range r.Devices {
		if of := gpuOf(x); healthSupported(x) && d.settled(of, reading.FieldUUID) {
			good[of] = true
		}
	}
	return good
}

// sees reports whether DCGM could show a fault: its GPU has to be well and what showed the
// fault to be readable. What belongs to no single GPU needs all of them, none fewer than
// there were.
func (d *deciding) sees(f Fault, r reading.Reading, good map[string]bool) bool {
	switch {
	case f.Check == Connectivity, f.Check == Unresponsive:
		return true
	case f.Of != "":
		return good[f.Of] && !slices.ContainsFunc(f.Fields, func(x reading.Field) bool { return !d.settled(f.Of, x) })
	}
	if !complete(f, r, good) {
		return false
	}
	x, ofSwitch := watchedSwitch(f, r)
	return !ofSwitch || d.seesSwitch(f, x)
}

// complete reports whether all GPUs are well, none fewer than there were.
func complete(f Fault, r reading.Reading, good map[string]bool) bool {
	return len(good) == len(r.Devices) && len(good) >= f.GPUs
}

// shownBy are the fields of a finding that can be read now. The power that cannot be read
// has to be readable again, whatever it was when the fault began.
func (d *deciding) shownBy(x finding) (fields []reading.Field) {
	if x.code == codePower {
		return x.fields
	}
	for _, field := range x.fields {
		if _, ok := d.Memory.fresh[sample{x.of, field}]; ok {
			fields = append(fields, field)
		}
	}
	return fields
}

// powerless remembers since when looks show that the power of a GPU cannot be read.
func (d *deciding) powerless(f *found, r reading.Reading) {
	power := map[string]int64{}
	for _, x := range f.by {
		if x.code != codePower {
			continue
		}
		power[x.of] = r.Next
		if since, ok := d.Memory.power[x.of]; ok {
			power[x.of] = since
		}
	}
	d.Memory.power = power
}

// unpowered reports whether the power of a GPU cannot be read, and other values can: DCGM
// shows the power first, when the driver stops to answer (XID 119) or the GPU has just
// returned. Another value of the GPU has to be sampled after that.
func (d *deciding) unpowered(x finding, r reading.Reading) bool {
	if !d.settled(x.of, reading.FieldUUID) {
		return false
	}
	for _, gpu := range r.Devices {
		for field, at := range gpu.Samples {
			if gpuOf(gpu) == x.of && field != reading.FieldPower && at > d.Memory.power[x.of] {
				return true
			}
		}
	}
	return false
}

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

// erring reports whether the newest sample of an NVSwitch has the error of a fault, or
// cannot be read. It bears the time of the error, however long ago that was.
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

// restarted reports whether only another boot can show that a fault of an NVSwitch is over:
// DCGM watches the switch and has no sample by which the fault would end.
func (d *deciding) restarted(f Fault, r reading.Reading, good map[string]bool) bool {
	x, ofSwitch := watchedSwitch(f, r)
	if !ofSwitch || x == nil || !d.past(f) || !complete(f, r, good) {
		return false
	}
	_, sampled := x.Samples[reading.FieldSwitchReset]
	return !sampled && !erring(f, *x)
}
