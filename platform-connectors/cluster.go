package main

import (
	"context"

	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/cluster"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/sink"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// buildCluster wires the connector of the control plane: from the store to the
// conditions of nodes, by the leader.
func buildCluster(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	client, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	records, err := storeopen.Open(ctx, cfg.Store.Reveal(), storeopen.Options{
		SingleHost: cfg.SingleHost, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock,
	})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return records.Close() })
	shown := &cluster.Conditions{
		Agents: cfg.clusterAgents(), Records: records, Client: client.Clientset,
		Clock: d.Clock, Log: d.Log, Metrics: sink.NewMetrics(d.Registry),
	}
	asked := &cluster.Clearing{Records: records, Client: client.Clientset, Clock: d.Clock, Log: d.Log}
	nodes := kube.WatchNodes(client.Clientset, cluster.StripNode)
	service := &consumer.Service{
		Name: name + "-cluster", Metrics: consume.Names{
			Namespace: "nvsentinel_connector_cluster", Handling: "nvsentinel_connector_cluster_event_handling_duration_seconds",
			Depth: "nvsentinel_connector_cluster_queue_depth",
		}, Store: records, Selector: shown.Selector(),
		Reconcile: func(ctx context.Context, node string) error {
			if err := asked.Handle(ctx, node); err != nil {
				return err
			}
			return shown.Handle(ctx, node)
		},
		Backlog: shown.Backlog,
		Sources: []func(context.Context, func(string)) error{nodes.Source(shown.Relevant), nodes.Source(cluster.RequestsClearing)},
	}
	if cfg.Coverage.Enabled {
		watch := cluster.NewCoverage(cluster.CoverageOptions{
			Config: cfg.Coverage, Client: client.Clientset, Nodes: nodes, Records: records, Clock: d.Clock, Log: d.Log,
		}, d.Registry)
		service.Tasks = []consume.Task{{Name: "coverage", Do: watch.Run}, {Name: "pod watch", Do: watch.Cache}}
	}
	d.Ready("nodes", nodes.Ready)
	consumer.Lead(d, consumer.Election{Lease: cfg.Lease, Kubeconfig: cfg.Kube.Kubeconfig, Task: "conditions", Caches: []consumer.Cache{nodes}}, service)
	return nil
}
