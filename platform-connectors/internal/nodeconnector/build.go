// Package nodeconnector wires the connector of a node: the socket, the spool, the
// way of its records to the gateways, and the conditions of its Node. It links no
// database.
package nodeconnector

import (
	"context"
	"io/fs"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/ingest"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
)

// opening opens where records go, for as long as it takes; it registers its metrics.
type opening func(ctx context.Context, metrics prometheus.Registerer) (upstream.Destination, error)

// Build wires the walk of an event: socket, spool, then gateways and Kubernetes.
func Build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	return build(ctx, d, cfg, func(context.Context, prometheus.Registerer) (upstream.Destination, error) {
		return upstream.Open(cfg.Gateway, d.Log)
	})
}

// build is Build with another destination. The spool closes last, after everything that
// uses it has ended.
func build(ctx context.Context, d *daemon.Daemon, cfg Config, open opening) error {
	queue, err := openSpool(d, cfg)
	if err != nil {
		return err
	}
	node, client, err := openNode(d, cfg)
	if err != nil {
		return err
	}
	stages, err := openPipeline(d, cfg, node, client)
	if err != nil {
		return err
	}
	follower := newFollower(d, cfg, queue, node, stages)
	tally := newTally(d, cfg, node, stages)
	records := openRecords(d, cfg, open, queue)
	notices := newNotices(d, node, client)
	sender := newSender(d, queue, records, stages, notices)
	forward := newForwarder(d, queue, node, sender, tally)
	p := parts{queue, node, past{records}, client, stages, sinkOf{records}}
	if client != nil {
		startSink(d, cfg, p)
	}
	startForwarder(d, forward)
	watchDelivery(d, p, forward, records, notices)
	startFollower(d, follower)
	tellOfFatal(d, cfg, p)
	authenticator, err := newAuthenticator(d, cfg, client)
	if err != nil {
		return err
	}

	listener, err := ingest.Listen(ctx, cfg.Socket, fs.FileMode(cfg.SocketMode))
	if err != nil {
		return err
	}
	server := &ingest.Server{
		NodeName: cfg.NodeName, Spool: queue.spool, Authenticator: authenticator, Direct: sender,
		Identity: node.Identity, IdentityOf: identityOf(client, d.Log),
		Rejected: func(problem string, events int) { notices.AddDetail(forwarder.EventsRejected, problem, events) },
		Clock:    d.Clock, Log: d.Log, Metrics: ingest.NewMetrics(d.Registry),
	}
	server.EarlierNumbers(cfg.Publishers.Policy(cfg.NodeName).EarlierAgents()...)
	d.Go("door", func(ctx context.Context) error { return ingest.Serve(ctx, listener, server) })
	return nil
}
