package demo

import (
	"context"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// dcgmFault has a GPU ask for a reboot of its node, which only DCGM reports
// (DCGM_FR_GPU_RECOVERY_REBOOT), and follows it like the kernel's fault.
func dcgmFault(ctx context.Context, f *fleet.Fleet, o Options, say func(string, ...any)) error {
	engine, err := f.AddDCGM(inspectedNode, o.DCGM)
	if err != nil {
		return err
	}
	_, err = follow(ctx, f, o, sense{node: inspectedNode, monitor: fleet.GPUMonitor, check: "GpuDriverWatch"}, func() error {
		say("DCGM of node %s reports a GPU that requires a reboot (DCGM is simulated and is read through the real go-dcgm):\n", inspectedNode)
		engine.UntilRestart(reading.Incident{System: 0x200, Health: reading.Fail, Code: 126, Entity: reading.Entity{Kind: reading.GPU, ID: 2}})
		return nil
	})
	return err
}
