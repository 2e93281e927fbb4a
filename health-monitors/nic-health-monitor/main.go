// Command nic-health-monitor reports network cards of its node that lost their
// link, vanished, or count errors, and when that is over.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/bootid"
	"github.com/nvidia/nvsentinel/health-monitors/internal/clearance"
	"github.com/nvidia/nvsentinel/health-monitors/internal/outlet"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/config"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/internal/daemon"
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
	outbox, err := outlet.Open(d, outlet.Config{
		Agent: config.Agent, Prefix: watch.Prefix, StateDir: cfg.StateDir, MiB: cfg.OutboxMiB, Socket: cfg.Socket, TokenPath: cfg.TokenPath,
		Replaced: "outbox was unreadable and is replaced: what waited in it is lost, and what was open is told again if it lasts",
	})
	if err != nil {
		return err
	}
	monitor := &watch.Monitor{
		Node: cfg.NodeName, Policy: policy, Interval: cfg.Interval, Cards: tree, Outbox: outbox, BootID: bootid.File(cfg.BootIDPath),
		Cleared: clearance.Follow(record.ClearedPath(cfg.Socket)), Clock: d.Clock, Log: d.Log, Metrics: watch.NewMetrics(d.Registry),
	}
	looks := monitor.Rounds()
	d.Ready("cards", looks.Ready)
	d.Go("cards", func(ctx context.Context) error { return monitor.Run(ctx, looks) })
	return nil
}
