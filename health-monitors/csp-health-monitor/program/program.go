// Package program is csp-health-monitor without its provider: what every cloud's
// program wires alike.
package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/internal/lease"
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
func Build(ctx context.Context, d *daemon.Daemon, cfg Config, cloud Cloud) error {
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
		Store: maintenances, Fleet: reconciler.Cached(nodes.Lister, synced, cloud.Source.Machine), Policy: cfg.Policy(), NodeName: cfg.NodeName,
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
		liveness, err := watches.Poll(ctx, client.Clientset, node, d.Clock.Now())
		return liveness.State, err
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

// Config is the part of the configuration that all providers share.
type Config struct {
	_ struct{} `block:"Maintenance" usage:"When an announced maintenance of a cloud provider takes effect ([csp-health-monitor](../monitors/csp.md))"`

	storeopen.Location
	lease.Cluster
	report.Connector
	report.Acting

	// ClusterName stands in the stored documents; required.
	ClusterName string `toml:"clusterName" bounds:"not empty" flag:"cluster-name" usage:"Name of the cluster in the stored maintenance events."`
	// RoundSeconds is between two rounds of decisions.
	RoundSeconds int `toml:"maintenanceEventPollIntervalSeconds" bounds:"10 to 3600 s" flag:"maintenance-event-poll-interval-seconds" usage:"Interval in seconds between two reads of the stored maintenance events, at least 10."`
	// PollSeconds is between two readings of the provider.
	PollSeconds int `toml:"pollingIntervalSeconds" bounds:"30 to 3600 s" flag:"polling-interval-seconds" usage:"Interval in seconds between two polls of the provider, at least 30."`
	// LeadMinutes is before the start.
	LeadMinutes int `toml:"triggerQuarantineWorkflowTimeLimitMinutes" bounds:"0 to 10080 min" flag:"trigger-quarantine-workflow-time-limit-minutes" usage:"Minutes before the start of a maintenance at which its node is reported as faulty, so that it can be quarantined."`
	// DelayMinutes is behind the end.
	DelayMinutes int `toml:"postMaintenanceHealthyDelayMinutes" bounds:"0 to 10080 min" flag:"post-maintenance-healthy-delay-minutes" usage:"Minutes after the end of a maintenance before the node is checked for the first time."`
	// ReadyMinutes is behind the delay.
	ReadyMinutes int `toml:"nodeReadinessTimeoutMinutes" bounds:"1 to 10080 min" flag:"node-readiness-timeout-minutes" usage:"Minutes within which the node must then become Ready. A node that does not is reported, and still recovers when it becomes Ready later."`
	// NodeName is the node that this replica runs on.
	NodeName string `toml:"nodeName" flag:"node-name" usage:"Name of the node that runs this replica. A fault of this node is reported when the provider cannot be read. Empty reports none."`
}

// Default has the numbers of the earlier NVSentinel, and acts on nothing.
func Default() Config {
	return Config{
		RoundSeconds: 60, PollSeconds: 60, LeadMinutes: 30, DelayMinutes: 15, ReadyMinutes: 60,
		Acting: report.Acting{Strategy: record.PersistOnly}, Connector: report.DefaultConnector(), Cluster: lease.DefaultCluster(),
	}
}

// Policy is when a maintenance acts.
func (c Config) Policy() lifecycle.Policy {
	return lifecycle.Policy{
		Lead: time.Duration(c.LeadMinutes) * time.Minute, HealthyDelay: time.Duration(c.DelayMinutes) * time.Minute,
		Readiness: time.Duration(c.ReadyMinutes) * time.Minute, Strategy: c.Strategy,
	}
}

// Poll is the time between two readings.
func (c Config) Poll() time.Duration { return time.Duration(c.PollSeconds) * time.Second }

// Rounds is the time between two rounds of decisions.
func (c Config) Rounds() time.Duration { return time.Duration(c.RoundSeconds) * time.Second }

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	return errors.Join(config.CheckBounds(c), c.Location.Validate(), c.Cluster.Validate())
}
