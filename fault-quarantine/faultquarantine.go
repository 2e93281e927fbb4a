// Package faultquarantine quarantines faulty nodes with a cordon and taints, and releases
// recovered ones.
package faultquarantine

import (
	"context"

	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const name = "fault-quarantine"

// purpose is the first sentence of the help.
const purpose = "fault-quarantine evaluates health events with rule sets, quarantines faulty nodes within budgets, and releases nodes after recovery."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller {
	return daemon.NewController(name, purpose, defaultConfig(), build)
}

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	rules, err := rulematch.Compile(cfg.rules())
	if err != nil {
		return err
	}
	cluster, err := kube.Connect(cfg.Kube, name)
	if err != nil {
		return err
	}
	opened, err := storeopen.Open(ctx, cfg.Store.Reveal(), storeopen.Options{SingleHost: cfg.SingleHost, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return opened.Close() })
	records := store.Acting(opened)
	now := cluster.Clock(d.Clock)
	fatal := consumer.OpenCrashMemory(records, name, d.Clock)
	nodes := kube.WatchNodes(cluster.Clientset, kube.Strip)
	queue := quota.New(nodes.Lister, nodes.Synced, now, cfg.quota())
	metrics := reconciler.NewMetrics(d.Registry)
	stop := pause.Start(d, cluster.Clientset, cfg.Lease.Namespace)
	handler := &reconciler.Reconciler{
		Pause: stop,
		Store: fatal.WithoutDeadLetters(), Reported: opened, Nodes: reconciler.Cluster{Client: cluster.Clientset, Events: eventrecorder.Start(d, cluster)}, Rules: rules,
		Mutator: marks.Mutator{LabelPrefix: cfg.LabelPrefix, AnyoneReleases: cfg.AnyoneReleases}, DryRun: cfg.DryRun, Retention: cfg.Retention,
		Clock: now, Log: d.Log, Metrics: metrics, Marked: reconciler.MarkedIn(nodes), Cached: nodes.Cached, Quota: queue,
	}
	d.Registry.MustRegister(queue, handler)
	daemon.Reload(d, cfg, defaultConfig, func(c Config) error {
		rules, err := rulematch.Compile(c.rules())
		if err != nil {
			return err
		}
		handler.Use(rules)
		queue.Set(c.quota())
		return nil
	})
	d.Ready("nodes", nodes.Ready)
	consumer.Lead(d, consumer.Election{Lease: cfg.Lease, Kubeconfig: cfg.Kube.Kubeconfig, Task: "events", Caches: []consumer.Cache{nodes}}, handler.Service(name, cfg.Workers, nodes, fatal))
	return nil
}
