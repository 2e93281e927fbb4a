// Command node-drainer moves the user pods off quarantined nodes before they
// are repaired.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/node-drainer/internal/config"
	"github.com/nvidia/nvsentinel/node-drainer/internal/drain"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
	"github.com/nvidia/nvsentinel/store-client/aside"
	"github.com/nvidia/nvsentinel/store-client/feed"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const name = "node-drainer"

func main() { daemon.Main(name, config.Default(), build) }

func build(ctx context.Context, d *daemon.Daemon, cfg config.Config) error {
	policy, err := cfg.Compile()
	if err != nil {
		return err
	}
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	world, err := drain.NewWorld(cluster.Clientset)
	if err != nil {
		return err
	}
	records, err := storeopen.Open(ctx, cfg.Store, storeopen.Options{
		SingleHost: cfg.SingleHost, Parts: cfg.Datastore, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock,
	})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return records.Close() })
	drains := drain.New(
		drain.Config{
			Policy: plan.DefaultPolicy(policy), DryRun: cfg.DryRun,
			PerNode: cfg.EvictionsPerNode, InFlight: cfg.EvictionsInFlight, PerSecond: cfg.EvictionsPerSecond,
		},
		drain.Deps{
			Records: records, Client: cluster.Clientset, World: world, Brake: brake.Start(d, cluster.Clientset, cfg.Lease.Namespace),
			Events: eventrecorder.Start(d, cluster), Clock: cluster.Clock(d.Clock), Log: d.Log, Metrics: drain.NewMetrics(d.Registry),
		})
	loop := &consume.Loop[record.Record]{
		Name: name, Open: feed.Of(records, name, record.NodeQuarantineStatus()), Key: drains.Key, Workers: cfg.Workers,
		Handle: drains.Handle, Backlog: drains.Backlog, Bells: []func(context.Context, func(string)) error{drains.Bell},
		Clock: d.Clock, Log: d.Log, Metrics: consume.NewMetrics(d.Registry, "node_drainer"),
		Vet: aside.Of(records, name, d.Clock).Vetting(nil, nil),
	}
	d.Go("watches", world.Run)
	d.Ready("watches", world.Synced)
	d.Ready("drains", loop.Ready)
	d.Elect("drains", func(ctx context.Context) error {
		if err := world.WaitForSync(ctx); err != nil {
			return err
		}
		return loop.Run(ctx)
	})
	return nil
}
