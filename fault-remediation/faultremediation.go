// Package faultremediation creates the maintenance objects of drained nodes and records their
// results.
package faultremediation

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const name = "fault-remediation"

// purpose is the first sentence of the help.
const purpose = "fault-remediation creates maintenance objects or repair chain runs for drained nodes and evaluates their results."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller {
	return daemon.NewController(name, purpose, defaultConfig(), build)
}

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	repairs, err := cfg.compile()
	if err != nil {
		return err
	}
	for _, w := range repairs.Warnings() {
		d.Log.Warn(w)
	}
	pods, err := cfg.Eviction.Compile()
	if err != nil {
		return err
	}
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	opened, err := storeopen.Open(ctx, cfg.Store.Reveal(), storeopen.Options{SingleHost: cfg.SingleHost, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return opened.Close() })
	records := store.Acting(opened)
	handler := &reconciler.Reconciler{
		Records: &consumer.Records{Store: records, Writer: record.FaultRemediation}, Cluster: cluster, Repairs: repairs, Policy: cfg.policy(),
		Pause: pause.Start(d, cluster.Clientset, cfg.Lease.Namespace), Events: eventrecorder.Start(d, cluster), Eviction: pods, DryRun: cfg.DryRun, Clock: cluster.Clock(d.Clock), Log: d.Log, Metrics: reconciler.NewMetrics(d.Registry),
	}
	if cfg.LeaseNamespace != "" {
		handler.Leases = &nodelease.Claims{Client: cluster.Clientset, Namespace: cfg.LeaseNamespace, Clock: handler.Clock}
	}
	nodes := kube.WatchNodes(cluster.Clientset, kube.StripToMarks)
	handler.Cached = nodes.Cached
	reconciler.RegisterRepeatOffenders(d.Registry, nodes.Lister, nodes.Synced)
	claims, err := reconciler.NewClaims(handler, nodes.Lister, cfg.OrphanedAfter)
	if err != nil {
		return err
	}
	objects := reconciler.NewWatch(cluster.Dynamic, repairs, d.Log, handler.Own)
	service := handler.Service(name, cfg.Workers)
	service.Sources = []func(context.Context, func(string)) error{nodes.Source(reconciler.Relevant), objects.Source}
	service.Tasks = []consume.Task{claims.Task()}
	d.Ready("nodes", nodes.Ready)
	d.Ready("maintenance kinds", objects.Ready)
	consumer.Lead(d, consumer.Election{Lease: cfg.Lease, Kubeconfig: cfg.Kube.Kubeconfig, Task: "repairs", Caches: []consumer.Cache{nodes}}, service)
	return nil
}
