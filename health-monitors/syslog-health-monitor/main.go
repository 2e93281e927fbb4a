// Command syslog-health-monitor reports the GPU faults that the kernel log of
// its node tells, and what a reboot has cured.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/health-monitors/internal/bootid"
	"github.com/nvidia/nvsentinel/health-monitors/internal/clearance"
	"github.com/nvidia/nvsentinel/health-monitors/internal/gpumetadata"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/config"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sighting"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/report"
)

func main() { daemon.Main(config.Agent, config.Default, build) }

func build(_ context.Context, d *daemon.Daemon, cfg config.Config) error {
	outbox, err := cfg.OpenOutbox(report.Options{Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("outbox", func(context.Context) error { return outbox.Close() })
	if outbox.Origin() == report.Replaced {
		d.Log.Error("outbox was unreadable and is replaced: what waited in it is lost, unless the log still tells it",
			"stateDir", cfg.StateDir, "kept", "outbox.db.damaged")
	}
	conn, err := report.Dial(cfg.Socket, cfg.TokenPath)
	if err != nil {
		return err
	}
	d.OnStop("connector", func(context.Context) error { return conn.Close() })

	publisher := &report.Publisher{
		Name: config.Agent, Outbox: outbox, Connector: protos.NewPlatformConnectorClient(conn), Clock: d.Clock,
		Log: d.Log, Metrics: report.NewMetrics(d.Registry, watch.Prefix, outbox, d.Clock),
	}
	policy, err := cfg.Policy()
	if err != nil {
		return err
	}
	log := cfg.OpenLog(d.Clock)
	d.OnStop("kernel log", func(context.Context) error { return log.Close() })
	monitor := &watch.Monitor{
		Policy: policy, Outbox: outbox, Source: log, Cleared: clearance.Follow(nodemark.ClearedPath(cfg.Socket)), BootID: bootid.File(cfg.BootIDPath),
		Devices: gpumetadata.Follow(cfg.MetadataPath, sighting.Address), Clock: d.Clock, Log: d.Log,
		Metrics: watch.NewMetrics(d.Registry, log.Counts),
	}
	if flooded, ok := log.(interface{ Wake() <-chan struct{} }); ok {
		monitor.Wake = flooded.Wake()
	}
	d.Ready("connector", publisher.Ready)
	d.Ready("kernel log", monitor.Ready)
	d.Go("publisher", publisher.Run)
	d.Go("kernel log", monitor.Run)
	return nil
}
