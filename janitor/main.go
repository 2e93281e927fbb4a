// Command janitor carries out repairs of nodes: it reads repair objects and
// asks the provider's plugin for what only the provider can do.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/janitor/internal/config"
	"github.com/nvidia/nvsentinel/janitor/internal/notice"
	"github.com/nvidia/nvsentinel/janitor/internal/workshop"
)

const name = "janitor"

func main() { daemon.Main(name, config.Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg config.Config) error {
	if !cfg.RebootNode.Enabled && !cfg.TerminateNode.Enabled && !cfg.GPUReset.Enabled {
		d.Log.Info("no controller is enabled")
		d.Go("idle", func(ctx context.Context) error { <-ctx.Done(); return nil })
		return nil
	}
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	objects, err := workshop.Objects(cluster.Config)
	if err != nil {
		return err
	}
	now := cluster.Clock(d.Clock)
	shared := workshop.Deps{
		Objects: objects, Nodes: cluster.Clientset,
		Notices: &notice.Board{Client: cluster.Clientset, Clock: now, Log: d.Log},
		Brake:   brake.Start(d, cluster.Clientset, cfg.Lease.Namespace),
		Clock:   now, Log: d.Log, Metrics: workshop.NewMetrics(d.Registry),
	}
	members, err := controllers(d, cfg, shared)
	if err != nil {
		return err
	}
	watch := workshop.NewWatch(cluster.Config, cfg.RebootNode.Workers, d.Log, members...)
	d.Ready("caches", watch.Synced)
	cfg.Lease.Lead(d, cfg.Kube.Kubeconfig, "repairs", watch.Run)
	return nil
}
