// Package healtheventsanalyzer looks for patterns in the faults of each node,
// and of all nodes, and reports what they mean as faults of its own.
package healtheventsanalyzer

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/internal/matching"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// purpose is the first sentence of the help.
const purpose = "health-events-analyzer detects patterns in stored health events and reports them as new faults."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller {
	return daemon.NewController(record.AnalyzerAgent, purpose, defaultConfig(), build)
}

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	rules, err := cfg.rules()
	if err != nil {
		return err
	}
	conn, err := report.Dial(cfg.Socket, cfg.TokenPath)
	if err != nil {
		return err
	}
	d.OnStop("connector", func(context.Context) error { return conn.Close() })
	records, err := storeopen.Open(ctx, cfg.Store.Reveal(), storeopen.Options{SingleHost: cfg.SingleHost, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return records.Close() })
	fatal := consumer.OpenCrashMemory(records, record.AnalyzerAgent, d.Clock)
	matcher := matching.New(matching.Options{
		Records: fatal.WithoutDeadLetters(), Connector: protos.NewPlatformConnectorClient(conn), Rules: rules, Strategy: record.Strategy(cfg.Strategy),
		CachedEvents: cfg.CachedEvents, Clock: d.Clock, Log: d.Log, Metrics: matching.NewMetrics(d.Registry),
	})
	daemon.Reload(d, cfg, defaultConfig, func(c Config) error {
		changed, err := c.rules()
		if err != nil {
			return err
		}
		matcher.Use(changed)
		return nil
	})
	// The first feed brings what rules are asked about, the second what may end
	// what they found. Neither begins before what a rule looks back on.
	begin := func() time.Time { return d.Clock.Now().Add(-rule.Longest(rules)) }
	// One life of one process: both share its account.
	vet := fatal.Vetting(nil, matcher.Try)
	vet.Records = matcher.Recent
	faults := &consumer.Service{
		Name: record.AnalyzerAgent, Metrics: consume.Names{
			Namespace: "nvsentinel_analyzer", Handling: "nvsentinel_analyzer_event_handling_duration_seconds",
			Depth: "nvsentinel_analyzer_queue_depth",
		}, Store: records, Selector: record.ProcessableNonFatalUnhealthyInserts(),
		Since: begin, Key: matcher.Trigger, Reconcile: matcher.Handle, Workers: cfg.Workers, Vet: vet,
	}
	causes := &consumer.Service{
		Name: record.AnalyzerAgent + "-causes", Metrics: consume.Names{
			Namespace: "nvsentinel_analyzer_causes", Handling: "nvsentinel_analyzer_causes_event_handling_duration_seconds",
			Depth: "nvsentinel_analyzer_causes_queue_depth",
		}, Store: records, Selector: record.AnalyzerCauses(),
		Since: begin, Key: matcher.Cause, Reconcile: matcher.Handle, Workers: cfg.Workers, Vet: vet,
	}
	consumer.Lead(d, consumer.Election{Lease: cfg.Lease, Kubeconfig: cfg.Kube.Kubeconfig, Task: "events"}, faults, causes)
	return nil
}
