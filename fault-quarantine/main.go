// Command fault-quarantine takes faulty nodes out of scheduling and lets
// recovered ones back.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/config"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/desk"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/places"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/ruling"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/aside"
	"github.com/nvidia/nvsentinel/store-client/feed"
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
	records, err := storeopen.Open(ctx, cfg.Store, storeopen.Options{SingleHost: cfg.SingleHost, Parts: cfg.Datastore, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return records.Close() })
	now := cluster.Clock(d.Clock)
	fatal := aside.Of(records, name, d.Clock)
	nodes := kube.WatchNodes(cluster.Clientset)
	book := places.New(nodes.Lister, nodes.Synced, now, cfg.Quota())
	metrics := desk.NewMetrics(d.Registry)
	notes := desk.NewNotes(cluster.Clientset, d.Log, metrics.EventsLost)
	stop := brake.Start(d, cluster.Clientset, cfg.Lease.Namespace)
	handler := &desk.Desk{
		Brake: stop,
		Store: fatal.Rest(), Nodes: desk.Cluster{Client: cluster.Clientset, Clock: now, Log: d.Log, Later: notes}, Rules: rules,
		Painter: marks.Painter{LabelPrefix: cfg.LabelPrefix}, DryRun: cfg.DryRun, Retention: cfg.Retention,
		Clock: now, Log: d.Log, Metrics: metrics, Marked: desk.MarkedIn(nodes), Places: book,
	}
	d.Registry.MustRegister(book, handler)
	daemon.Reload(d, cfg, config.Default, func(c config.Config) error {
		rules, err := ruling.Compile(c.Rules())
		if err != nil {
			return err
		}
		handler.Use(rules)
		book.Set(c.Quota())
		return nil
	})
	loop := &consume.Loop[record.Record]{
		Name: name, Open: feed.Of(records, name, record.ProcessableHealthEventInserts()), Key: func(r record.Record) string { return r.Event.NodeName },
		Handle: handler.Handle, Backlog: handler.Backlog,
		Bells: []func(context.Context, func(string)) error{nodes.Bell(handler.Rings), book.Bell, handler.BrakeBell(stop)},
		Tasks: []consume.Task{handler.Stranded(), {Name: "nodes that count", Do: func(ctx context.Context) error {
			return nodes.Bell(desk.Counts)(ctx, func(string) { book.Poke() })
		}}},
		Workers: cfg.Workers, Clock: d.Clock, Log: d.Log, Metrics: consume.NewMetrics(d.Registry, "fault_quarantine"),
		Vet: fatal.Vetting(desk.Present, handler.Try),
	}
	loop.Vet.Tell = handler.Tell
	d.Go("node watch", nodes.Run)
	d.Go("node events", notes.Run)
	d.Go("retention", func(ctx context.Context) error { return handler.Expire(ctx, now) })
	d.Ready("nodes", nodes.Synced)
	d.Ready("events", loop.Ready)
	d.Elect("events", loop.Run)
	return nil
}
