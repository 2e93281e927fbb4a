// Package repairchain repairs nodes in the steps that RepairChain objects define: each step
// is an object of any kind, later ones are made of the outputs of earlier ones, and the
// run's status shows what led to what.
package repairchain

import (
	"context"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/repair-chain/internal/reconciler"
)

const name = "repair-chain"

// purpose is the first sentence of the help.
const purpose = "repair-chain executes the steps of RepairChain objects on nodes."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller {
	return daemon.NewController(name, purpose, defaultConfig(), build)
}

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	decodable, err := controller.Skipping(cluster.Config, controller.NewSkips(nil, d.Log, d.Registry), v1alpha1.AddToScheme)
	if err != nil {
		return err
	}
	live, err := reconciler.Live(decodable)
	if err != nil {
		return err
	}
	deps := reconciler.Deps{
		Live: live, Objects: cluster.Dynamic, Pause: pause.Start(d, cluster.Clientset, cfg.Lease.Namespace), Keep: cfg.Keep,
		Clock: cluster.Clock(d.Clock), Log: d.Log, Metrics: reconciler.NewMetrics(d.Registry),
	}
	if cfg.LeaseNamespace != "" {
		deps.Leases = &nodelease.Claims{Client: cluster.Clientset, Namespace: cfg.LeaseNamespace, Clock: deps.Clock}
	}
	w := reconciler.New(decodable, deps)
	d.Ready("runs", w.Synced)
	cfg.Lease.Lead(d, cfg.Kube.Kubeconfig, "runs", w.Run)
	return nil
}
