// Command platform-connectors is the front door of a node: it makes health
// events durable, acknowledges them, and carries them to the record store and
// to Kubernetes. In other roles it stands between the connectors of nodes and the
// store, or shows the faults of cluster-wide publishers.
package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/config"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/destination"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const name = "platform-connectors"

func main() { daemon.Main(name, config.Default(), build) }

// build wires the role's parts.
func build(ctx context.Context, d *daemon.Daemon, cfg config.Config) error {
	switch cfg.Role {
	case config.RoleCluster:
		return buildCluster(ctx, d, cfg)
	case config.RoleGateway:
		return buildGateway(ctx, d, cfg)
	}
	return nodeconnector.Build(ctx, d, cfg.Config, nodeconnector.Upstream{
		Open: func(ctx context.Context, metrics prometheus.Registerer) (destination.Destination, error) {
			return openDestination(ctx, cfg, options(d, cfg, metrics))
		},
		History: cfg.StoreAccount != config.AccountAppend,
	})
}

func options(d *daemon.Daemon, cfg config.Config, metrics prometheus.Registerer) storeopen.Options {
	return storeopen.Options{SingleHost: cfg.SingleHost, Parts: cfg.Datastore, Logger: d.Log, Registerer: metrics, Clock: d.Clock}
}

// openDestination opens the store with the rights that its account has.
func openDestination(ctx context.Context, cfg config.Config, o storeopen.Options) (destination.Destination, error) {
	if cfg.StoreAccount == config.AccountAppend {
		return storeopen.OpenAppender(ctx, cfg.Store.Reveal(), o)
	}
	s, err := storeopen.Open(ctx, cfg.Store.Reveal(), o)
	if err != nil {
		return nil, err
	}
	return destination.Direct{Store: s, Node: cfg.NodeName}, nil
}
