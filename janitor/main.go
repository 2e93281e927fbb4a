// Command janitor carries out repairs of nodes: it reads repair objects and
// asks the provider's plugin for what only the provider can do.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/janitor/internal/config"
	"github.com/nvidia/nvsentinel/janitor/internal/notice"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/internal/rebootnode"
)

const name = "janitor"

func main() { daemon.Main(name, config.Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg config.Config) error {
	if !cfg.RebootNode.Enabled {
		d.Log.Info("no controller is enabled")
		d.Go("idle", func(ctx context.Context) error { <-ctx.Done(); return nil })
		return nil
	}
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	plugin, err := provider.Dial(cfg.Endpoint())
	if err != nil {
		return err
	}
	d.OnStop("plugin", func(context.Context) error { return plugin.Close() })
	health := provider.NewWatch(plugin, d.Clock, d.Log, d.Registry)
	d.Ready("plugin", health.Ready)
	d.Go("plugin health", health.Run)
	objects, err := rebootnode.Objects(cluster.Config)
	if err != nil {
		return err
	}
	excluded, err := cfg.Exclusions()
	if err != nil {
		return err
	}
	reboots := rebootnode.New(cfg.Policy(), rebootnode.Deps{
		Objects: objects, Nodes: cluster.Clientset, Plugin: plugin, Excluded: excluded,
		Notices: &notice.Board{Client: cluster.Clientset, Clock: d.Clock, Log: d.Log},
		Clock:   d.Clock, Log: d.Log, Metrics: rebootnode.NewMetrics(d.Registry),
	})
	watch := rebootnode.NewWatch(reboots, cluster.Config, cfg.RebootNode.Workers)
	d.Ready("caches", watch.Synced)
	d.Elect("repairs", watch.Run)
	return nil
}
