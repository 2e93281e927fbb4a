// Package janitor executes maintenance objects: it reboots, replaces and resets through the
// provider's plugin.
package janitor

import (
	"context"

	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

const name = "janitor"

// purpose is the first sentence of the help.
const purpose = "janitor executes RebootNode, TerminateNode and GPUReset objects through provider plugins and Jobs."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller {
	return daemon.NewController(name, purpose, defaultConfig(), build)
}

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	if !cfg.RebootNode.Enabled && !cfg.TerminateNode.Enabled && !cfg.GPUReset.Enabled {
		d.Log.Info("no controller enabled")
		d.Go("idle", func(ctx context.Context) error { <-ctx.Done(); return nil })
		return nil
	}
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	events := eventrecorder.Start(d, cluster)
	config, err := reconciler.Decodable(cluster.Config, controller.NewSkips(events, d.Log, d.Registry))
	if err != nil {
		return err
	}
	objects, err := reconciler.Objects(config)
	if err != nil {
		return err
	}
	shared := reconciler.Deps{
		Objects: objects, Nodes: cluster.Clientset,
		Events: events,
		Pause:  pause.Start(d, cluster.Clientset, cfg.Lease.Namespace),
		Clock:  cluster.Clock(d.Clock), Log: d.Log, Metrics: reconciler.NewMetrics(d.Registry),
	}
	members, err := controllers(d, cfg, shared)
	if err != nil {
		return err
	}
	watch := reconciler.NewWatch(config, cfg.RebootNode.Workers, d.Clock, d.Log, members...)
	d.Ready("caches", watch.Synced)
	cfg.Lease.Lead(d, cfg.Kube.Kubeconfig, "repairs", watch.Run)
	return nil
}
