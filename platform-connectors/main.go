// Command platform-connectors is the connector of the control plane. In role gateway it
// stands between the connectors of nodes (node-connector) and the store; in role cluster
// it shows the faults of cluster-wide publishers.
package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const name = "platform-connectors"

// purpose is the first sentence of the help.
const purpose = "platform-connectors stores the events of node connectors (role gateway) or writes Node conditions for cluster-wide publishers (role cluster)."

func main() { daemon.Main(name, purpose, defaultConfig(), build) }

// build wires the role's parts.
func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	if cfg.Role == roleCluster {
		return buildCluster(ctx, d, cfg)
	}
	return buildGateway(ctx, d, cfg)
}

func options(d *daemon.Daemon, cfg Config, metrics prometheus.Registerer) storeopen.Options {
	return storeopen.Options{SingleHost: cfg.SingleHost, Logger: d.Log, Registerer: metrics, Clock: d.Clock}
}
