package main

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// TestAnXIDThatIsAppendedLate: the engine appends no XID while the driver hangs, and then
// with the kernel's time of it, behind what was looked at meanwhile. Started again, it reads
// it once more, with a timestamp that differs a little.
func TestAnXIDThatIsAppendedLate(t *testing.T) {
	n := newNode(t, 4)
	n.unreachableAfter = "1h"
	n.start()
	n.expectIdle(3)
	n.engine.AppendXID(gpu(0), 79, time.Now())
	n.expect("GpuXidWatch 79 " + ofGPU(0) + " fatal RESTART_BM PERSIST_ONLY")
	for id, late := range map[uint]time.Duration{1: 11 * time.Second, 2: time.Minute, 3: 50 * time.Minute} {
		n.engine.AppendXID(gpu(id), 79, time.Now().Add(-late))
		n.expect("GpuXidWatch 79 " + ofGPU(id) + " fatal RESTART_BM PERSIST_ONLY")
		n.expectIdle(3)
	}
	sets := n.engine.Calls("HealthSet")
	n.engine.Start()
	n.reconnected(sets)
}

// TestXIDsOfMIGInstances: DCGM files them under the instances, which the health check
// ignores. Instances that come while the monitor runs are watched too.
func TestXIDsOfMIGInstances(t *testing.T) {
	instance := func(id uint) reading.Entity { return reading.Entity{Kind: reading.GPUInstance, ID: id} }
	compute := func(id uint) reading.Entity { return reading.Entity{Kind: reading.ComputeInstance, ID: id} }
	n := newNode(t, 2)
	n.unreachableAfter = "1h"
	n.engine.Instances(map[reading.Entity]uint{instance(8): 1, compute(8): 1})
	n.start()
	n.expectIdle(3)
	n.engine.AppendXID(instance(8), 95, time.Now())
	n.expect("GpuXidWatch 95 [GPU=1 PCI=00000000:11:00.0 GPU_UUID=GPU-00000001 GPU_INSTANCE=8] fatal COMPONENT_RESET PERSIST_ONLY")
	n.engine.AppendXID(compute(8), 31, time.Now())
	n.expect("GpuXidWatch 31 [GPU=1 PCI=00000000:11:00.0 GPU_UUID=GPU-00000001 COMPUTE_INSTANCE=8] warning NONE PERSIST_ONLY")

	sets := n.engine.Calls("HealthSet")
	n.engine.Instances(map[reading.Entity]uint{instance(1): 0, instance(8): 1, compute(8): 1})
	n.reconnected(sets)
	n.engine.AppendXID(instance(1), 94, time.Now())
	n.expect("GpuXidWatch 94 [GPU=0 PCI=00000000:10:00.0 GPU_UUID=GPU-00000000 GPU_INSTANCE=1] warning NONE PERSIST_ONLY")
	n.engine.XID(0, 13)
	n.expect("GpuXidWatch 13 " + ofGPU(0) + " warning NONE PERSIST_ONLY")
}

// TestWatchesOfMIGInstancesThatAreRefused: what DCGM refuses hides nothing else, and is
// reported: once in the log, and in a metric as long as it lasts.
func TestWatchesOfMIGInstancesThatAreRefused(t *testing.T) {
	instance := func(id uint) reading.Entity { return reading.Entity{Kind: reading.GPUInstance, ID: id} }
	compute := func(id uint) reading.Entity { return reading.Entity{Kind: reading.ComputeInstance, ID: id} }
	// DCGM watches a group or refuses it: then it is not known what of its instances is watched.
	for call, refused := range map[string]string{"GroupAddEntity": "1", "WatchFields": "2", "GetValuesSince": "2"} {
		t.Run(call, func(t *testing.T) {
			n := newNode(t, 2)
			n.unreachableAfter = "1h"
			n.engine.Instances(map[reading.Entity]uint{instance(7): 0, instance(8): 1, compute(8): 1})
			n.engine.Refuse(call, instance(8), compute(8))
			n.start()
			n.expectIdle(10)
			if refused == "1" {
				n.engine.AppendXID(instance(7), 95, time.Now())
				n.expect("GpuXidWatch 95 [GPU=0 PCI=00000000:10:00.0 GPU_UUID=GPU-00000000 GPU_INSTANCE=7] fatal COMPONENT_RESET PERSIST_ONLY")
			}
			n.engine.XID(1, 13)
			n.expect("GpuXidWatch 13 " + ofGPU(1) + " warning NONE PERSIST_ONLY")
			n.await("the metric", func() bool {
				return n.metric(`nvsentinel_gpu_monitor_refused_watches{entity="GPU_INSTANCE"}`) == refused &&
					n.metric(`nvsentinel_gpu_monitor_refused_watches{entity="COMPUTE_INSTANCE"}`) == "1"
			})
			n.expectIdle(10)
			if count := n.countLogLines("DCGM watches refused"); count != 1 {
				t.Errorf("the refusal is in the log %d times, want once", count)
			}
			n.engine.Refuse(call)
			sets := n.engine.Calls("HealthSet")
			n.engine.Start() // watched again
			n.reconnected(sets)
			n.await("the metric", func() bool { return n.metric(`nvsentinel_gpu_monitor_refused_watches{entity="GPU_INSTANCE"}`) == "0" })
			n.engine.AppendXID(instance(8), 94, time.Now())
			n.expect("GpuXidWatch 94 [GPU=1 PCI=00000000:11:00.0 GPU_UUID=GPU-00000001 GPU_INSTANCE=8] warning NONE PERSIST_ONLY")
		})
	}
}
