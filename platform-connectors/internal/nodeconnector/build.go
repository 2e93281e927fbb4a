// Package nodeconnector is the front door of a node, wired: the socket, the spool, the
// way of its records upstream, and the conditions of its Node. It does not know whether
// the store or a gateway is there, and links no database.
package nodeconnector

import (
	"context"
	"io/fs"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/destination"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/ingest"
)

// Upstream is where records go.
type Upstream struct {
	// Open opens it, for as long as it takes; it registers its metrics.
	Open func(ctx context.Context, metrics prometheus.Registerer) (destination.Destination, error)
	// History says that the open destination is a destination.Historian.
	History bool
}

// Build wires the walk of an event: socket, spool, then upstream and Kubernetes. The
// spool closes last, after everything that uses it has ended.
func Build(ctx context.Context, d *daemon.Daemon, cfg Config, up Upstream) error {
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
	records := openRecords(d, cfg, up, queue)
	notices := newNotices(d, node, client)
	sender := newSender(d, queue, records, stages, notices)
	forward := newForwarder(d, queue, node, sender, tally)
	p := parts{queue, node, history(up, records), client, stages, sinkOf{records}}
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
