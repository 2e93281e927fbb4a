// Command syslog-health-monitor reports the GPU faults in the kernel log of its node, and
// what a reboot has cured.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// purpose is the first sentence of the help.
const purpose = "syslog-health-monitor reports GPU faults found in the kernel log of a node, and their recovery after a reboot."

func main() { daemon.Main(Agent, purpose, Default, build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	policy, err := cfg.Policy()
	if err != nil {
		return err
	}
	outbox, err := cfg.Outbox(d, Agent, watch.Prefix,
		"unreadable outbox replaced: its pending events are lost unless the log still contains them")
	if err != nil {
		return err
	}
	log := cfg.OpenLog(d.Clock)
	d.OnStop("kernel log", func(context.Context) error { return log.Close() })
	monitor := &watch.Monitor{
		Policy: policy, Outbox: outbox, Source: log, Cleared: cfg.Clearances(), BootID: nodefile.BootID(cfg.BootIDPath),
		Devices: nodefile.FollowGPUs(cfg.MetadataPath, location.Address), Clock: d.Clock, Log: d.Log,
		Metrics: watch.NewMetrics(d.Registry, log.Counts),
	}
	if flooded, ok := log.(interface{ Wake() <-chan struct{} }); ok {
		monitor.Wake = flooded.Wake()
	}
	passes := monitor.Rounds()
	d.Ready("kernel log", passes.Ready)
	d.Go("kernel log", func(ctx context.Context) error { return monitor.Run(ctx, passes) })
	return nil
}
