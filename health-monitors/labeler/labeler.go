// Package labeler keeps labels of Nodes that show what is on them: the driver, the version
// of DCGM, Kata, and how many GPUs and NICs a node has and should have.
package labeler

import (
	"context"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/internal/watch"
	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

const name = "labeler"

// purpose is the first sentence of the help.
const purpose = "labeler labels nodes with the DCGM version, driver installation, Kata support and device counts."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller { return daemon.NewController(name, purpose, defaultConfig, build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	policy, err := cfg.policy()
	if err != nil {
		return err
	}
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	caches := watch.NewCaches(cluster.Clientset, watch.Sources{
		Namespaces: cfg.PodNamespaces, DCGM: cfg.DCGMApp, Driver: cfg.DriverApp, GKE: cfg.GKEApp, Slices: readSlices(policy),
	})
	labeler := &watch.Labeler{
		Client: cluster.Clientset, Caches: caches, Policy: policy, Workers: cfg.Workers,
		Clock: d.Clock, Log: d.Log, Metrics: watch.NewMetrics(d.Registry),
	}
	loop := labeler.Loop(consume.NewMetrics(d.Registry, consume.Names{
		Namespace: "nvsentinel_labeler", Handling: "labeler_event_handling_duration_seconds",
		Depth: "nvsentinel_labeler_queue_depth",
	}))
	d.Ready("caches", caches.Ready)
	d.Ready("labels", loop.Ready)
	cfg.Lease.Lead(d, cfg.Kube.Kubeconfig, "labels", func(ctx context.Context) error { return labeler.Run(ctx, loop) })
	return nil
}

func readSlices(p labeling.Policy) bool {
	for _, c := range p.Classes {
		if c.ReadsSlices() {
			return true
		}
	}
	return false
}
