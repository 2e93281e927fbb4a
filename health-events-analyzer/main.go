// Command health-events-analyzer looks for patterns in the faults of each node,
// and of all nodes, and reports what they mean as faults of its own.
package main

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/internal/config"
	"github.com/nvidia/nvsentinel/health-events-analyzer/internal/desk"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/store-client/aside"
	"github.com/nvidia/nvsentinel/store-client/feed"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func main() { daemon.Main(record.AnalyzerAgent, config.Default(), build) }

func build(ctx context.Context, d *daemon.Daemon, cfg config.Config) error {
	rules, err := cfg.Rules()
	if err != nil {
		return err
	}
	conn, err := report.Dial(cfg.Socket, cfg.TokenPath)
	if err != nil {
		return err
	}
	d.OnStop("connector", func(context.Context) error { return conn.Close() })
	records, err := storeopen.Open(ctx, cfg.Store, storeopen.Options{SingleHost: cfg.SingleHost, Parts: cfg.Datastore, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return records.Close() })
	fatal := aside.Of(records, record.AnalyzerAgent, d.Clock)
	judge := desk.New(desk.Options{
		Records: fatal.Rest(), Connector: protos.NewPlatformConnectorClient(conn), Rules: rules, Strategy: record.Strategy(cfg.Strategy),
		CachedEvents: cfg.CachedEvents, Clock: d.Clock, Log: d.Log, Metrics: desk.NewMetrics(d.Registry),
	})
	daemon.Reload(d, cfg, config.Default, func(c config.Config) error {
		changed, err := c.Rules()
		if err != nil {
			return err
		}
		judge.Use(changed)
		return nil
	})
	// The first feed brings what rules are asked about, the second what may end
	// what they found. Neither begins before what a rule looks back on.
	begin := func() time.Time { return d.Clock.Now().Add(-rule.Longest(rules)) }
	faults := feed.From(records, record.AnalyzerAgent, record.ProcessableNonFatalUnhealthyInserts(), begin, nil)
	causes := feed.From(records, record.AnalyzerAgent+"-causes", record.AnalyzerCauses(), begin, nil)
	// One life of one process: both loops share its account.
	vet := fatal.Vetting(nil, judge.Try)
	vet.Records = judge.Recent
	loop := func(name, metrics string, open feed.Open, key func(record.Record) string) *consume.Loop[record.Record] {
		return &consume.Loop[record.Record]{
			Name: name, Open: open, Key: key, Handle: judge.Handle, Workers: cfg.Workers, Clock: d.Clock, Log: d.Log,
			Metrics: consume.NewMetrics(d.Registry, metrics), Vet: vet,
		}
	}
	events := loop("faults", "health_events_analyzer", faults, judge.Trigger)
	ends := loop("causes", "health_events_analyzer_causes", causes, judge.Cause)
	d.Ready("faults", events.Ready)
	d.Ready("causes", ends.Ready)
	d.Elect("events", func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- ends.Run(ctx) }()
		err := events.Run(ctx)
		if other := <-ended; err == nil {
			err = other
		}
		return err
	})
	return nil
}
