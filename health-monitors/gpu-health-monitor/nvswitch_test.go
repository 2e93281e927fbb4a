package main

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// DCGM's fields of NVSwitches.
const (
	fatalSXID     = 856
	nonFatalSXID  = 857
	resetRequired = 864
)

func nvswitch(id uint) reading.Entity { return reading.Entity{Kind: reading.Switch, ID: id} }

func fatalOf(id uint) reading.Incident {
	return reading.Incident{System: 0x800, Health: reading.Fail, Code: 15, Entity: nvswitch(id)}
}

// TestAnNVSwitchThatCannotBeReadEndsNothing: DCGM drops the incidents of an NVSwitch when its
// library is disconnected, and when the sample of the error is older than a minute.
func TestAnNVSwitchThatCannotBeReadEndsNothing(t *testing.T) {
	const fatal = "GpuNvswitchFatalWatch DCGM_FR_NVSWITCH_FATAL_ERROR [NVSWITCH=0] "
	const down = "GpuNvswitchFatalWatch DCGM_FR_NVLINK_DOWN [NVSWITCH=0] "
	n := newNode(t, 2)
	n.engine.Switches(0, 1)
	n.start()
	n.engine.Value(nvswitch(0), fatalSXID, 20034, time.Time{})
	n.engine.Incident(fatalOf(0))
	n.expect(fatal + "fatal CONTACT_SUPPORT PROCESS")
	n.engine.Incident(reading.Incident{System: 0x800, Health: reading.Fail, Code: 14, Entity: nvswitch(0)})
	n.expect(down + "fatal RESTART_VM PROCESS")

	for _, field := range []int{fatalSXID, resetRequired} { // the library is disconnected
		n.engine.Value(nvswitch(0), field, notRead, time.Time{})
	}
	n.engine.Clear(14)
	n.expectIdle(10)
	n.engine.Value(nvswitch(0), resetRequired, 0, time.Now().Add(-2*time.Minute)) // and samples end
	n.expectIdle(10)
	n.engine.Value(nvswitch(0), fatalSXID, 20034, time.Now().Add(-2*time.Minute)) // the error is old, and was not repaired
	n.engine.Value(nvswitch(0), resetRequired, 0, time.Time{})
	n.expect(down + "healthy NONE PROCESS")
	n.expectIdle(10)
	n.engine.Value(nvswitch(0), fatalSXID, 0, time.Now().Add(-2*time.Minute))
	n.engine.Value(nvswitch(0), resetRequired, 1, time.Time{})
	n.expectIdle(10)
	n.engine.Value(nvswitch(0), resetRequired, 0, time.Time{})
	n.expect(fatal + "healthy NONE PROCESS")
}

// TestAWarningOfAnNVSwitch ends once the error is not the newest sample any more.
func TestAWarningOfAnNVSwitch(t *testing.T) {
	const warning = "GpuNvswitchNonfatalWatch DCGM_FR_NVSWITCH_NON_FATAL_ERROR [NVSWITCH=1] "
	n := newNode(t, 2)
	n.engine.Switches(0, 1)
	n.start()
	n.engine.Value(nvswitch(1), nonFatalSXID, 11004, time.Time{})
	n.engine.Incident(reading.Incident{System: 0x400, Health: reading.Warn, Code: 16, Entity: nvswitch(1)})
	n.expect(warning + "warning NONE PROCESS")
	n.engine.Value(nvswitch(1), nonFatalSXID, notRead, time.Time{})
	n.expectIdle(10)
	n.engine.Value(nvswitch(1), nonFatalSXID, 0, time.Time{})
	n.expect(warning + "healthy NONE PROCESS")
}
