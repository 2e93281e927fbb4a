package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// ofGPU are the names of a GPU in events.
func ofGPU(id uint) string {
	return fmt.Sprintf("[GPU=%d PCI=00000000:%02X:00.0 GPU_UUID=GPU-%08d]", id, 0x10+id, id)
}

func dbe(id uint) reading.Incident {
	return reading.Incident{System: 0x10, Health: reading.Fail, Code: 4, Entity: gpu(id)}
}

const dbeFault = "GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED "

// TestALostGPUHidesNoOther: DCGM refuses to add a lost GPU to a group. Another
// connection still watches the other GPUs, and another monitor reports that it is lost.
func TestALostGPUHidesNoOther(t *testing.T) {
	n := newNode(t, 3)
	n.start()
	n.engine.Incident(dbe(1))
	n.expect(dbeFault + ofGPU(1) + " fatal COMPONENT_RESET PROCESS")
	n.engine.Status(1, reading.Lost)
	n.expect("GpuLostWatch GPU_LOST " + ofGPU(1) + " fatal RESTART_BM PROCESS")

	sets := n.engine.Calls("HealthSet")
	if err := syscall.Kill(child(t, n.cmd.Process.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.await("another connection", func() bool { return n.engine.Calls("HealthSet") > sets })
	n.engine.Incident(dbe(0))
	n.expect(dbeFault + ofGPU(0) + " fatal COMPONENT_RESET PROCESS")
	n.expectIdle(10)

	n.kill() // a monitor that knows nothing of before
	if err := os.RemoveAll(filepath.Join(n.dir, "state")); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.expectAll(dbeFault+ofGPU(0)+" fatal COMPONENT_RESET PROCESS", "GpuLostWatch GPU_LOST [GPU=1] fatal RESTART_BM PROCESS")
	n.expectIdle(10)
	n.engine.Status(1, reading.OK)
	n.expectAll("GpuLostWatch GPU_LOST [GPU=1] healthy NONE PROCESS", dbeFault+ofGPU(1)+" fatal COMPONENT_RESET PROCESS")
}

// TestGPUsThatCannotBeWatched: of one that is lost, disabled or detached when the monitor
// connects nothing ends, the others are watched, and so is it once it is good again.
func TestGPUsThatCannotBeWatched(t *testing.T) {
	for _, status := range []reading.Status{reading.Lost, reading.Disabled, reading.Detached} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			n := newNode(t, 2)
			n.start()
			n.engine.Incident(dbe(1))
			n.expect(dbeFault + ofGPU(1) + " fatal COMPONENT_RESET PROCESS")
			n.kill()
			n.engine.Status(1, status)
			n.start()
			if status == reading.Lost {
				n.expect("GpuLostWatch GPU_LOST " + ofGPU(1) + " fatal RESTART_BM PROCESS")
			}
			n.engine.Incident(dbe(0))
			n.expect(dbeFault + ofGPU(0) + " fatal COMPONENT_RESET PROCESS")
			n.expectIdle(10)
			if count := n.countLogLines("DCGM watches refused"); count != 1 {
				t.Errorf("the refusal is in the log %d times, want once", count)
			}
			n.engine.Clear(0)
			n.expect(dbeFault + ofGPU(0) + " healthy NONE PROCESS")
			n.expectIdle(10)
			n.engine.Status(1, reading.OK)
			want := []string{dbeFault + ofGPU(1) + " healthy NONE PROCESS"}
			if status == reading.Lost {
				want = append(want, "GpuLostWatch GPU_LOST "+ofGPU(1)+" healthy NONE PROCESS")
			}
			n.expectAll(want...)
		})
	}
}

// TestNoGPUCanBeWatched: a diagnostic has DCGM stop its telemetry of every GPU. That is
// no failure, and nothing ends meanwhile.
func TestNoGPUCanBeWatched(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.engine.Incident(dbe(1))
	n.expect(dbeFault + ofGPU(1) + " fatal COMPONENT_RESET PROCESS")
	n.kill()
	n.engine.Status(0, reading.Disabled)
	n.engine.Status(1, reading.Disabled)
	n.engine.Clear(0)
	n.start()
	before := n.engine.Calls("GetGpuStatus")
	n.await("some polls", func() bool { return n.engine.Calls("GetGpuStatus") >= before+60 })
	n.engine.Status(0, reading.OK)
	n.engine.Status(1, reading.OK)
	n.expect(dbeFault + ofGPU(1) + " healthy NONE PROCESS")
}
