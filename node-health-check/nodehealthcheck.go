// Package nodehealthcheck remediates nodes that have been unhealthy for too long,
// a dead kubelet's included, as NodeHealthCheck objects define: within a budget, with
// restraint in a storm, by one remediator after the other.
package nodehealthcheck

import (
	"context"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/node-health-check/internal/bridge"
	"github.com/nvidia/nvsentinel/node-health-check/internal/reconciler"
)

const name = "node-health-check"

// purpose is the first sentence of the help.
const purpose = "node-health-check remediates nodes whose conditions match a NodeHealthCheck object for too long."

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
	now := cluster.Clock(d.Clock)
	beside, err := span(d, cfg, live, now)
	if err != nil {
		return err
	}
	w := reconciler.New(decodable, reconciler.Deps{
		Live: live, Claims: nodelease.Claims{Client: cluster.Clientset, Namespace: cfg.LeaseNamespace, Clock: now}, Beside: beside,
		Pause: pause.Start(d, cluster.Clientset, cfg.Lease.Namespace), Workers: cfg.Workers, DryRun: cfg.DryRun,
		Clock: now, Log: d.Log, Metrics: reconciler.NewMetrics(d.Registry),
	})
	if cfg.DryRun {
		d.Log.Info("dry run enabled, remediations are reported but not started or removed")
	}
	d.Ready("checks", w.Synced)
	cfg.Lease.Lead(d, cfg.Kube.Kubeconfig, "checks", w.Run)
	return nil
}

// span is the remediator of HealthEventRemediations; nil if it is not wanted.
func span(d *daemon.Daemon, cfg Config, live client.Client, now clock.PassiveClock) (func(ctrl.Manager) error, error) {
	if !cfg.Bridge {
		return nil, nil
	}
	conn, err := report.Dial(cfg.Socket, cfg.TokenPath)
	if err != nil {
		return nil, err
	}
	d.OnStop("connector", func(context.Context) error { return conn.Close() })
	b := bridge.New(bridge.Deps{
		Live: live, Connector: protos.NewPlatformConnectorClient(conn), DryRun: cfg.DryRun,
		Clock: now, Log: d.Log, Metrics: bridge.NewMetrics(d.Registry),
	})
	d.Ready("connector", b.Ready)
	return b.Watch, nil
}
