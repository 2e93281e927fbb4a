// Package nodedrainer moves the user pods off quarantined nodes before they
// are repaired.
package nodedrainer

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/node-drainer/internal/reconciler"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const name = "node-drainer"

// purpose is the first sentence of the help.
const purpose = "node-drainer evicts Pods from nodes in quarantine before they are remediated."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller {
	return daemon.NewController(name, purpose, defaultConfig(), build)
}

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	policy, err := cfg.Compile()
	if err != nil {
		return err
	}
	api, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	cluster, err := reconciler.NewCluster(api.Clientset)
	if err != nil {
		return err
	}
	opened, err := storeopen.Open(ctx, cfg.Store.Reveal(), storeopen.Options{
		SingleHost: cfg.SingleHost, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock,
	})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return opened.Close() })
	records := store.Acting(opened)
	pace := decision.DefaultPolicy(policy)
	pace.Overdue = time.Duration(cfg.OverdueAfterMinutes) * time.Minute
	own := &consumer.Records{Store: records, Writer: record.NodeDrainer}
	drains := reconciler.New(
		reconciler.Config{
			Policy: pace, DryRun: cfg.DryRun,
			PerNode: cfg.EvictionsPerNode, InFlight: cfg.EvictionsInFlight, PerSecond: cfg.EvictionsPerSecond,
		},
		reconciler.Deps{
			Records: own, Client: api.Clientset, Cluster: cluster, Pause: pause.Start(d, api.Clientset, cfg.Lease.Namespace),
			Events: eventrecorder.Start(d, api), Clock: api.Clock(d.Clock), Log: d.Log, Metrics: reconciler.NewMetrics(d.Registry),
		})
	d.Ready("watches", cluster.Ready)
	consumer.Lead(d, consumer.Election{Lease: cfg.Lease, Kubeconfig: cfg.Kube.Kubeconfig, Task: "drains", Caches: []consumer.Cache{cluster}}, drains.Service(name, cfg.Workers))
	return nil
}
