// Command gpu-health-monitor reports the GPU faults that DCGM sees on its node, and
// their ends.
package main

import (
	"context"
	"os"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/check"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/libdcgm"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/worker"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// purpose is the first sentence of the help.
const purpose = "gpu-health-monitor reports GPU faults that DCGM detects on a node, and their recovery."

func main() {
	if len(os.Args) == 2 && os.Args[1] == WorkerArgument {
		talk()
		return
	}
	daemon.Main(check.Agent, purpose, Default, build)
}

// talk is the process that talks to DCGM.
func talk() {
	lib, err := libdcgm.New()
	if err != nil {
		os.Exit(withoutDCGM)
	}
	worker.Serve(os.Stdin, os.NewFile(worker.Answers, "answers"), lib, func() { os.Exit(0) })
}

// withoutDCGM is the exit code of a binary that cannot talk to DCGM, as it is of a
// command line that cannot be carried out.
const withoutDCGM = 2

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	if libdcgm.ErrMissing != nil {
		d.Log.Error("DCGM monitoring unavailable in this build", "error", libdcgm.ErrMissing)
		os.Exit(withoutDCGM)
	}
	policy, err := cfg.Policy()
	if err != nil {
		return err
	}
	outbox, err := cfg.Outbox(d, check.Agent, watch.Prefix,
		"unreadable outbox replaced: its pending events are lost and open faults are reported again")
	if err != nil {
		return err
	}
	metrics := watch.NewMetrics(d.Registry)
	monitor := &watch.Monitor{
		Policy: policy, Interval: cfg.PollInterval, Outbox: outbox, BootID: nodefile.OwnBootID(nodefile.BootID(cfg.BootIDPath)), Metrics: metrics,
		Cleared: cfg.Clearances(),
		Devices: nodefile.FollowGPUs(cfg.MetadataPath, func(address string) string { return address }), Clock: d.Clock, Log: d.Log,
		DCGM: &worker.Process{
			Command: Command, Target: cfg.Target(), Deadline: cfg.CallDeadline, Pause: cfg.ReconnectPause, Clock: d.Clock,
			Called: metrics.Called, Replaced: metrics.WorkerAbandoned,
		},
	}
	looks := monitor.Rounds()
	d.Ready("dcgm", looks.Ready)
	d.Go("dcgm", func(ctx context.Context) error { return monitor.Run(ctx, looks) })
	return nil
}
