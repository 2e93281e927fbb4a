// Command fault-quarantine takes faulty nodes out of scheduling and lets
// recovered ones back.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/fault-quarantine/internal/config"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/desk"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/places"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/ruling"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/aside"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const name = "fault-quarantine"

func main() { daemon.Main(name, config.Default(), build) }

func build(ctx context.Context, d *daemon.Daemon, cfg config.Config) error {
	rules, err := ruling.Compile(cfg.Rules())
	if err != nil {
		return err
	}
	cluster, err := kube.Connect(cfg.Kube, name)
	if err != nil {
		return err
	}
	opened, err := storeopen.Open(ctx, cfg.Store, storeopen.Options{SingleHost: cfg.SingleHost, Parts: cfg.Datastore, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return opened.Close() })
	records := store.Acting(opened)
	now := cluster.Clock(d.Clock)
	fatal := aside.Of(records, name, d.Clock)
	nodes := kube.WatchNodes(cluster.Clientset)
	book := places.New(nodes.Lister, nodes.Synced, now, cfg.Quota())
	metrics := desk.NewMetrics(d.Registry)
	notes := desk.NewNotes(cluster.Clientset, d.Log, metrics.EventsLost)
	stop := brake.Start(d, cluster.Clientset, cfg.Lease.Namespace)
	handler := &desk.Desk{
		Brake: stop,
		Store: fatal.Rest(), Said: opened, Nodes: desk.Cluster{Client: cluster.Clientset, Clock: now, Log: d.Log, Later: notes}, Rules: rules,
		Painter: marks.Painter{LabelPrefix: cfg.LabelPrefix}, DryRun: cfg.DryRun, Retention: cfg.Retention,
		Clock: now, Log: d.Log, Metrics: metrics, Marked: desk.MarkedIn(nodes), Places: book,
	}
	d.Registry.MustRegister(book, handler)
	daemon.Reload(d, config.Default, func(c config.Config) ([]string, error) {
		rules, err := ruling.Compile(c.Rules())
		if err != nil {
			return nil, err
		}
		handler.Use(rules)
		book.Set(c.Quota())
		return cfg.NeedsRestart(c), nil
	})
	d.Go("node watch", nodes.Run)
	d.Go("node events", notes.Run)
	d.Ready("nodes", nodes.Synced)
	consumer.Lead(d, consumer.Election{Lease: cfg.Lease, Kubeconfig: cfg.Kube.Kubeconfig, Task: "events"}, handler.Service(name, cfg.Workers, nodes, fatal))
	return nil
}
