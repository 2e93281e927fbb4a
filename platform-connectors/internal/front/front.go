// Package front is the front door of a node, wired: the socket, the spool, the way
// of its records upstream, and the conditions of its Node. It does not know whether
// the store or a gateway is there, and links no database.
package front

import (
	"context"
	"io/fs"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/door"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/records"
)

// Upstream is where records go.
type Upstream struct {
	// Open opens it, for as long as it takes; it registers its metrics.
	Open func(ctx context.Context, metrics prometheus.Registerer) (records.Place, error)
	// History says that the open place is a records.Historian.
	History bool
}

// Build wires the walk of an event: door, spool, then upstream and Kubernetes. The
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
	desk := newDesk(d, cfg, queue, node, stages)
	tally := newTally(d, cfg, node, stages)
	records := openRecords(d, cfg, up, queue)
	carrier := newCarrier(d, queue, records, stages)
	carry := newReplay(d, queue, node, carrier, tally)
	p := parts{queue, node, history(up, records), client, stages, sinkOf{records}}
	if client != nil {
		startSink(d, cfg, p)
	}
	startReplay(d, carry)
	startDesk(d, desk)
	tellOfFatal(d, cfg, p)
	gate, err := newGate(d, cfg, client)
	if err != nil {
		return err
	}

	listener, err := door.Listen(ctx, cfg.Socket, fs.FileMode(cfg.SocketMode))
	if err != nil {
		return err
	}
	front := &door.Door{
		NodeName: cfg.NodeName, Spool: queue.spool, Gate: gate, Direct: carrier,
		Identity: node.Identity, IdentityOf: identityOf(client, d.Log),
		Clock: d.Clock, Log: d.Log, Metrics: door.NewMetrics(d.Registry),
	}
	front.EarlierNumbers(cfg.Publishers.Policy(cfg.NodeName).EarlierAgents()...)
	d.Go("door", func(ctx context.Context) error { return door.Serve(ctx, listener, front) })
	return nil
}
