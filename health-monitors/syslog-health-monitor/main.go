// Command syslog-health-monitor reports the GPU faults that the kernel log of
// its node tells, and what a reboot has cured.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/bootid"
	"github.com/nvidia/nvsentinel/health-monitors/internal/clearance"
	"github.com/nvidia/nvsentinel/health-monitors/internal/gpumetadata"
	"github.com/nvidia/nvsentinel/health-monitors/internal/outlet"
	"github.com/nvidia/nvsentinel/health-monitors/sighting"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/config"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

func main() { daemon.Main(config.Agent, config.Default, build) }

func build(_ context.Context, d *daemon.Daemon, cfg config.Config) error {
	policy, err := cfg.Policy()
	if err != nil {
		return err
	}
	outbox, err := outlet.Open(d, outlet.Config{
		Agent: config.Agent, Prefix: watch.Prefix, StateDir: cfg.StateDir, MiB: cfg.OutboxMiB, Socket: cfg.Socket, TokenPath: cfg.TokenPath,
		Replaced: "outbox was unreadable and is replaced: what waited in it is lost, unless the log still tells it",
	})
	if err != nil {
		return err
	}
	log := cfg.OpenLog(d.Clock)
	d.OnStop("kernel log", func(context.Context) error { return log.Close() })
	monitor := &watch.Monitor{
		Policy: policy, Outbox: outbox, Source: log, Cleared: clearance.Follow(record.ClearedPath(cfg.Socket)), BootID: bootid.File(cfg.BootIDPath),
		Devices: gpumetadata.Follow(cfg.MetadataPath, sighting.Address), Clock: d.Clock, Log: d.Log,
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
