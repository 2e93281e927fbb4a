package check

import (
	"maps"
	"slices"
	"strconv"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/location"
)

// ending is a fault that polls show to be over: why, and which of the last ones.
type ending struct {
	why   Reason
	polls pollHistory
}

// ends closes the faults that polls show to be over, for the same reason, often enough.
func (d *deciding) ends(f *found, r reading.Reading) {
	good := d.well(r)
	for _, key := range slices.Sorted(maps.Keys(d.State.Faults)) {
		open := d.State.Faults[key]
		why := d.over(open, r, good)
		if d.seen[key] || why == "" || why != Replaced && open.Field && f.blind[key] {
			delete(d.Memory.clear, key)
			continue
		}
		e := d.Memory.clear[key]
		if e.why != why {
			e = ending{why: why}
		}
		e.polls = e.polls.add(true)
		d.Memory.clear[key] = e
		if e.polls.reach(d.p.rule(open.Check).Clear) {
			d.end(key, open, why)
		}
	}
}

// over is why a fault that the look does not show would be over; empty where the look
// could not have shown it.
func (d *deciding) over(f Fault, r reading.Reading, good map[string]bool) Reason {
	switch {
	case d.v.Now.Sub(d.v.Connected) < d.p.Settle:
		return ""
	case d.replaced(f, r.Devices):
		return Replaced
	case f.Edge && f.Cured && d.past(f) && d.sees(f, r, good):
		return CuredByReboot
	case !f.Edge && d.restarted(f, r, good):
		return Restarted
	case f.Edge || !d.sees(f, r, good):
		return ""
	case !latched(f) || d.past(f) || f.Cleared:
		return Ended
	case d.wasReset(f):
		return Reset
	}
	return ""
}

// replaced reports whether another GPU is in the place of a fault's: under a later boot,
// because its machine is off meanwhile, every GPU reports its name, that one is not among
// them, and one is at its address. There are as many as there ever were, because the
// others may get other addresses too when one does not come back.
func (d *deciding) replaced(f Fault, gpus []reading.Device) bool {
	if !d.past(f) || len(gpus) < len(d.State.Devices) || !slices.Contains(f.Names, [2]string{"GPU_UUID", f.Of}) {
		return false
	}
	there := false
	for _, x := range gpus {
		if x.UUID == "" || x.UUID == f.Of {
			return false
		}
		there = there || slices.ContainsFunc(f.Names, func(n [2]string) bool {
			return n[0] == "PCI" && location.Address(n[1]) == location.Address(x.PCI)
		})
	}
	return there
}

// endings are the texts of ends that are no recovery by itself.
var endings = map[Reason]string{
	Replaced: "The GPU was replaced",
	Reset:    "The GPU was reset: the driver requested a reset before and requests none now",
	Restarted: "The node was restarted and DCGM no longer shows the fault of the NVSwitch: it has no sample of the field that shows " +
		"whether the NVSwitch needs a reset (864)",
}

// end reports the end of a fault and forgets it. Of what a person cleared nothing is left
// to report.
func (d *deciding) end(key string, f Fault, why Reason) {
	delete(d.State.Faults, key)
	delete(d.Memory.clear, key)
	delete(d.Memory.raise, key)
	d.Changed = true
	if f.Cleared {
		return
	}
	f.Names = d.unambiguous(f, why)
	e := d.event(f)
	e.IsHealthy, e.Message = true, record.HealthyMessage
	if text, special := endings[why]; special {
		e.Message = text
	}
	e.ProcessingStrategy = record.StrategyNumber(f.Strategy)
	d.Reports = append(d.Reports, Report{key, e, why})
}

// latchedCodes are the errors that DCGM makes of XIDs: measured with DCGM 4.6.0,
// where they stay until the host engine is started again.
var latchedCodes = map[string]bool{
	codeFallenOff: true, "DCGM_FR_UNCONTAINED_ERROR": true, "DCGM_FR_CONTAINED_ERROR": true, codeXID: true,
}

// latching are the XIDs of which DCGM makes an error that a field shows too, by that
// error (DCGM 4.6.0; 93 on Volta alone): it stays like the others.
var latching = map[string]string{
	"63": "DCGM_FR_PENDING_PAGE_RETIREMENTS", "64": "DCGM_FR_ROW_REMAP_FAILURE", "60": "DCGM_FR_CLOCKS_EVENT_THERMAL",
	"57": "DCGM_FR_CLOCKS_EVENT_POWER", "93": "DCGM_FR_CORRUPT_INFOROM",
}

// recoveryChanged is the XID by which the driver reports that a GPU needs another recovery
// action than before, or none: no fault of its own.
const recoveryChanged = 154

// latched reports whether a host engine forgets the fault when it is started again,
// although nothing was repaired: that it is not shown is no evidence.
func latched(f Fault) bool { return f.Latched || latchedCodes[f.Code] }

// latches reports whether a finding is, or may be, what DCGM made of an XID of this boot.
func (d *deciding) latches(x finding) bool {
	return latchedCodes[x.code] || d.State.Latching[x.of+"|"+x.code] != ""
}

// struck takes a new XID of a GPU: what the driver asked for before does not answer it, and
// what a person cleared is reported again when DCGM shows it.
func (d *deciding) struck(of string, number int64) {
	if number == recoveryChanged {
		return
	}
	code := latching[strconv.FormatInt(number, 10)]
	if code != "" {
		d.State.Latching[of+"|"+code] = d.State.Boot
	}
	for key, f := range d.State.Faults {
		switch {
		case f.Of != of || f.Edge:
		case f.Cleared:
			delete(d.State.Faults, key)
		default:
			f.ResetRequested, f.Latched = false, f.Latched || f.Code == code
			d.State.Faults[key] = f
		}
	}
}

// recovery takes the recovery that the driver asks for. A latched fault has ended without
// another boot when the driver asked for a reset of its GPU and asks for nothing any more.
func (d *deciding) recovery(gpus []reading.Device) {
	for _, x := range gpus {
		if x.Recovery == nil || !healthSupported(x) || !isRecent(x, reading.FieldRecoveryAction, d.v.Reading.Next) {
			continue
		}
		switch of := gpuOf(x); *x.Recovery {
		case reading.RecoveryNone:
			d.recovered[of] = true
		case reading.RecoveryReset, reading.RecoveryDrainAndReset:
			if x.Samples[reading.FieldRecoveryAction] > d.State.lastXID(of) { // or it was asked for before
				d.resetRequested(of, true)
			}
		case reading.RecoveryReboot:
			d.resetRequested(of, false)
		}
	}
}

func (d *deciding) resetRequested(of string, asked bool) {
	for key, f := range d.State.Faults {
		if f.Of == of && !f.Edge && latched(f) && f.ResetRequested != asked {
			f.ResetRequested = asked
			d.State.Faults[key], d.Changed = f, true
		}
	}
}

// wasReset reports whether the driver shows that the reset it asked for was done.
func (d *deciding) wasReset(f Fault) bool {
	return f.ResetRequested && d.recovered[f.Of] && d.settled(f.Of, reading.FieldRecoveryAction)
}
