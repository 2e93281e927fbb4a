// Command nic-health-monitor reports network cards of its node that lost their
// link, vanished, or count errors, and when that is over.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/health-monitors/internal/bootid"
	"github.com/nvidia/nvsentinel/health-monitors/internal/clearance"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/config"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/report"
)

func main() { daemon.Main(config.Agent, config.Default, build) }

func build(_ context.Context, d *daemon.Daemon, cfg config.Config) error {
	policy, err := cfg.Policy()
	if err != nil {
		return err
	}
	tree, err := cfg.Tree(policy.Counters)
	if err != nil {
		return err
	}
	outbox, err := cfg.OpenOutbox(report.Options{Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("outbox", func(context.Context) error { return outbox.Close() })
	if outbox.Origin() == report.Replaced {
		d.Log.Error("outbox was unreadable and is replaced: what waited in it is lost, and what was open is told again if it lasts",
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
	monitor := &watch.Monitor{
		Node: cfg.NodeName, Policy: policy, Interval: cfg.Interval, Cards: tree, Outbox: outbox, BootID: bootid.File(cfg.BootIDPath),
		Cleared: clearance.Follow(nodemark.ClearedPath(cfg.Socket)), Clock: d.Clock, Log: d.Log, Metrics: watch.NewMetrics(d.Registry),
	}
	d.Ready("connector", publisher.Ready)
	d.Ready("cards", monitor.Ready)
	d.Go("publisher", publisher.Run)
	d.Go("cards", monitor.Run)
	return nil
}
