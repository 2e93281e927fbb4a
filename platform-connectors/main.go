// Command platform-connectors is the front door of a node: it makes health
// events durable, acknowledges them, and carries them to the record store and
// to Kubernetes.
package main

import (
	"context"
	"io/fs"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/config"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/door"
)

const name = "platform-connectors"

func main() { daemon.Main(name, config.Default(), build) }

// build wires the role's parts.
func build(ctx context.Context, d *daemon.Daemon, cfg config.Config) error {
	if cfg.Role == config.RoleCluster {
		return buildCluster(ctx, d, cfg)
	}
	return buildNode(ctx, d, cfg)
}

// buildNode wires the walk of an event: door, spool, then store and Kubernetes. The
// spool closes last, after everything that uses it has ended.
func buildNode(ctx context.Context, d *daemon.Daemon, cfg config.Config) error {
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
	records := openStore(d, cfg)
	if client != nil {
		startSink(d, cfg, parts{queue, node, records, client, stages})
	}
	carrier := newCarrier(d, queue, records, stages)
	startReplay(d, queue, node, carrier)
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
	d.Go("door", func(ctx context.Context) error { return door.Serve(ctx, listener, front) })
	return nil
}
