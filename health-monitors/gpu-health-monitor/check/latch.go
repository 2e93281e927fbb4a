package check

import (
	"strconv"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

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

// recoveryChanged is the XID by which the driver says that a GPU needs another recovery
// action than before, or none: no fault of its own.
const recoveryChanged = 154

// latched tells a fault that a host engine forgets when it is started again, although
// nothing was repaired: that it is not shown is no evidence.
func latched(f Fault) bool { return f.Latched || latchedCodes[f.Code] }

// latches tells whether a finding is, or may be, what DCGM made of an XID of this boot.
func (d *deciding) latches(x finding) bool {
	return latchedCodes[x.code] || d.State.Latching[x.of+"|"+x.code] != ""
}

// struck takes a new XID of a GPU: what the driver asked for before does not answer it, and
// what a person cleared is told again when DCGM shows it.
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
			f.ResetAsked, f.Latched = false, f.Latched || f.Code == code
			d.State.Faults[key] = f
		}
	}
}

// recovery takes what the driver says that GPUs need. A latched fault has ended without
// another boot when the driver asked for a reset of its GPU and asks for nothing any more.
func (d *deciding) recovery(gpus []reading.Device) {
	for _, x := range gpus {
		if x.Recovery == nil || !judged(x) || !isRecent(x, reading.FieldRecoveryAction, d.v.Reading.Next) {
			continue
		}
		switch of := gpuOf(x); *x.Recovery {
		case reading.RecoveryNone:
			d.recovered[of] = true
		case reading.RecoveryReset, reading.RecoveryDrainAndReset:
			if x.Samples[reading.FieldRecoveryAction] > d.State.lastXID(of) { // or it was asked for before
				d.resetAsked(of, true)
			}
		case reading.RecoveryReboot:
			d.resetAsked(of, false)
		}
	}
}

func (d *deciding) resetAsked(of string, asked bool) {
	for key, f := range d.State.Faults {
		if f.Of == of && !f.Edge && latched(f) && f.ResetAsked != asked {
			f.ResetAsked = asked
			d.State.Faults[key], d.Changed = f, true
		}
	}
}

// wasReset tells whether the driver says that the reset it asked for was done.
func (d *deciding) wasReset(f Fault) bool {
	return f.ResetAsked && d.recovered[f.Of] && d.settled(f.Of, reading.FieldRecoveryAction)
}
