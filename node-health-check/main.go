// Command node-health-check remediates nodes that have been unhealthy for too long,
// a dead kubelet's included, as NodeHealthCheck objects say: within a budget, with
// restraint in a storm, by one remediator after the other.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/node-health-check/internal/config"
	"github.com/nvidia/nvsentinel/node-health-check/internal/ward"
)

const name = "node-health-check"

func main() { daemon.Main(name, config.Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg config.Config) error {
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	live, err := ward.Live(cluster.Config)
	if err != nil {
		return err
	}
	now := cluster.Clock(d.Clock)
	w := ward.New(cluster.Config, ward.Deps{
		Live: live, Claims: nodelease.Claims{Client: cluster.Clientset, Namespace: cfg.LeaseNamespace, Clock: now},
		Brake: brake.Start(d, cluster.Clientset, cfg.Lease.Namespace), Workers: cfg.Workers, DryRun: cfg.DryRun,
		Clock: now, Log: d.Log, Metrics: ward.NewMetrics(d.Registry),
	})
	if cfg.DryRun {
		d.Log.Info("dry run: remediations are decided about and told of, and none is begun or removed")
	}
	d.Ready("checks", w.Synced)
	d.Elect("checks", w.Run)
	return nil
}
