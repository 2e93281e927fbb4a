// Package program is csp-health-monitor without its provider: what every cloud's
// program wires alike.
package program

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/config"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/fleet"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Cloud is what a provider's program brings.
type Cloud struct {
	// CSP is the provider's name in stored documents: aws.
	CSP string
	// ResourceType is what it calls a machine, the entity of its events: EC2.
	ResourceType string
	Source       announcement.Source
}

// Build wires the monitor of one cloud.
func Build(ctx context.Context, d *daemon.Daemon, cfg config.Config, cloud Cloud) error {
	client, err := kube.Connect(cfg.Kube, lifecycle.Agent)
	if err != nil {
		return err
	}
	conn, err := report.Dial(cfg.Socket, cfg.TokenPath)
	if err != nil {
		return err
	}
	d.OnStop("connector", func(context.Context) error { return conn.Close() })
	maintenances, err := storeopen.OpenMaintenances(ctx, cfg.Store.Reveal(), storeopen.Options{SingleHost: cfg.SingleHost, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return maintenances.Close() })
	nodes := kube.WatchNodes(client.Clientset, kube.StripToMarks)
	synced := func() bool { ok, _ := nodes.Synced(); return ok }
	metrics := reconciler.NewMetrics(d.Registry)
	monitor := reconciler.New(reconciler.Options{
		Source: cloud.Source, Origin: lifecycle.Origin{CSP: cloud.CSP, Cluster: cfg.ClusterName, ResourceType: cloud.ResourceType},
		Store: maintenances, Fleet: fleet.Cached(nodes.Lister, synced, cloud.Source.Machine), Policy: cfg.Policy(), NodeName: cfg.NodeName,
		Kubelet: kubelets(client, nodes, d, 2*cfg.Rounds()), Poll: cfg.Poll(), Rounds: cfg.Rounds(), Clock: d.Clock, Log: d.Log, Metrics: metrics,
	})
	publisher := &report.Publisher{
		Name: lifecycle.Agent, Outbox: monitor, Connector: protos.NewPlatformConnectorClient(conn), Clock: d.Clock, Log: d.Log, Metrics: metrics.Publisher,
	}
	for _, part := range []string{"provider", "store", "bound"} {
		d.Ready(part, monitor.Ready(part))
	}
	d.Ready("connector", publisher.Ready)
	d.Ready("nodes", nodes.Ready)
	cfg.Lease.Lead(d, cfg.Kube.Kubeconfig, "maintenances", func(ctx context.Context) error { return lead(ctx, nodes, monitor, publisher) })
	return nil
}

// kubelets looks at kubelets, of Nodes as a cache has them; gap is the longest time between two
// rounds.
func kubelets(client *kube.Client, nodes *kube.Nodes, d *daemon.Daemon, gap time.Duration) func(context.Context, string) (kubelet.State, error) {
	watches := &kubelet.Watches{Gap: gap}
	return func(ctx context.Context, name string) (kubelet.State, error) {
		node, err := nodes.Lister.Get(name)
		if err != nil {
			return kubelet.Unknown, fmt.Errorf("looking up node %s: %w", name, err)
		}
		life, err := watches.Look(ctx, client.Clientset, node, d.Clock.Now())
		return life.State, err
	}
}

// lead works and publishes until ctx ends or one of them fails.
func lead(ctx context.Context, nodes *kube.Nodes, monitor *reconciler.Reconciler, publisher *report.Publisher) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return nodes.Run(ctx) })
	if nodes.WaitForSync(ctx) != nil {
		return work.Wait() // it ends before the nodes were read
	}
	monitor.Check(ctx)
	work.Go(func() error { return publisher.Run(ctx) })
	work.Go(func() error { return monitor.Run(ctx) })
	return work.Wait()
}
