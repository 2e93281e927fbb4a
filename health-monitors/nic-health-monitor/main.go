// Command nic-health-monitor reports network cards of its node that lost their
// link, vanished, or count errors, and when that is over.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// purpose is the first sentence of the help.
const purpose = "nic-health-monitor reports lost links, missing cards and error counters of network cards on a node, and their recovery."

func main() { daemon.Main(Agent, purpose, Default, build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	policy, err := cfg.Policy()
	if err != nil {
		return err
	}
	tree, err := cfg.Tree(policy.Counters)
	if err != nil {
		return err
	}
	outbox, err := cfg.Outbox(d, Agent, watch.Prefix,
		"unreadable outbox replaced: its pending events are lost and open faults are reported again")
	if err != nil {
		return err
	}
	monitor := &watch.Monitor{
		Node: cfg.NodeName, Policy: policy, Interval: cfg.Interval, Cards: tree, Outbox: outbox, BootID: nodefile.BootID(cfg.BootIDPath),
		Cleared: cfg.Clearances(), Clock: d.Clock, Log: d.Log, Metrics: watch.NewMetrics(d.Registry),
	}
	looks := monitor.Rounds()
	d.Ready("cards", looks.Ready)
	d.Go("cards", func(ctx context.Context) error { return monitor.Run(ctx, looks) })
	return nil
}
