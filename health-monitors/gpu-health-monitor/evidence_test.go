package main

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// notRead is the blank of a field that NVML answers with an error.
const notRead = 0x7ffffffffffffff2

// TestADriverThatHangsEndsNothing: DCGM answers from its cache, so that an incident is gone
// when its last sample is a minute old, while the status of each GPU is OK and its name
// stays. That nothing of the node can be read is reported.
func TestADriverThatHangsEndsNothing(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.engine.Incident(dbe(1))
	n.expect(dbeFault + ofGPU(1) + " fatal COMPONENT_RESET PROCESS")
	n.engine.Freeze(time.Now().Add(-time.Minute))
	n.expect("GpuDcgmConnectivityFailure DCGM_TELEMETRY_UNAVAILABLE [] fatal CONTACT_SUPPORT PROCESS")
	n.expectIdle(10)
	n.engine.Freeze(time.Time{})
	n.expect("GpuDcgmConnectivityFailure DCGM_TELEMETRY_UNAVAILABLE [] healthy NONE PROCESS")
	n.expectIdle(10)
	n.engine.Clear(0)
	n.expect(dbeFault + ofGPU(1) + " healthy NONE PROCESS")
}

// TestAFieldThatCannotBeReadEndsNothing: NVML answers with an error for the counters of one
// GPU. Its incidents are gone; its status, its name and its other values are as before.
func TestAFieldThatCannotBeReadEndsNothing(t *testing.T) {
	const dbes, remapFailure = 311, 395
	n := newNode(t, 2)
	n.start()
	n.engine.Incident(dbe(1))
	n.expect(dbeFault + ofGPU(1) + " fatal COMPONENT_RESET PROCESS")
	n.engine.Incident(reading.Incident{System: 0x10, Health: reading.Fail, Code: 80, Entity: gpu(1)})
	n.expect("GpuMemWatch DCGM_FR_ROW_REMAP_FAILURE " + ofGPU(1) + " fatal CONTACT_SUPPORT PROCESS")
	n.engine.Field(1, dbes, notRead)
	n.engine.Field(1, remapFailure, notRead)
	n.expectIdle(10)
	n.engine.Clear(80)
	n.engine.Field(1, remapFailure, 0)
	n.expect("GpuMemWatch DCGM_FR_ROW_REMAP_FAILURE " + ofGPU(1) + " healthy NONE PROCESS")
	n.engine.Field(1, dbes, 1)
	n.expectIdle(10)
	n.engine.Clear(0)
	n.expect(dbeFault + ofGPU(1) + " healthy NONE PROCESS")
}

// TestXID119IsOneIncident: after XID 119 the driver answers for no GPU of the node. DCGM
// warns of the power of each, which cannot be read; that is no fault of each.
func TestXID119IsOneIncident(t *testing.T) {
	n := newNode(t, 8)
	n.start()
	n.engine.Incident(dbe(2))
	n.expect(dbeFault + ofGPU(2) + " fatal COMPONENT_RESET PROCESS")
	n.engine.KernelXID(6, 119, 0)
	n.expect("GpuXidWatch 119 " + ofGPU(6) + " fatal COMPONENT_RESET PERSIST_ONLY")
	n.engine.Unreadable(0, 1, 2, 3, 4, 5, 6, 7)
	n.expect("GpuDcgmConnectivityFailure DCGM_TELEMETRY_UNAVAILABLE [] fatal CONTACT_SUPPORT PROCESS")
	n.expectIdle(20)
	n.engine.Unreadable()
	n.expect("GpuDcgmConnectivityFailure DCGM_TELEMETRY_UNAVAILABLE [] healthy NONE PROCESS")
	n.expectIdle(10)
}

// TestPowerThatCannotBeRead is a fault of a GPU whose other values can be.
func TestPowerThatCannotBeRead(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.engine.Field(1, 155, 0x7ffffffffffffff0)
	n.expect("GpuPowerWatch DCGM_FR_POWER_UNREADABLE " + ofGPU(1) + " warning RESTART_VM PROCESS")
	n.engine.Field(1, 155, 300)
	n.expect("GpuPowerWatch DCGM_FR_POWER_UNREADABLE " + ofGPU(1) + " healthy NONE PROCESS")
}
