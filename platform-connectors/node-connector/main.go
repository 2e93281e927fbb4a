// Command node-connector is the front door of a node whose records go to a gateway:
// it holds no account of the record store, and links no database.
package main

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/destination"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
)

// config is what an operator can set about it.
type config struct {
	nodeconnector.Config
	// Gateway says how to reach the gateways.
	Gateway upstream.Config `toml:"gateway"`
}

// Validate joins everything that is wrong.
func (c config) Validate() error {
	return errors.Join(c.Config.Validate(), c.Gateway.Validate())
}

func main() {
	daemon.Main("node-connector", config{Config: nodeconnector.Default(), Gateway: upstream.Default()}, build)
}

func build(ctx context.Context, d *daemon.Daemon, cfg config) error {
	return nodeconnector.Build(ctx, d, cfg.Config, nodeconnector.Upstream{
		Open: func(context.Context, prometheus.Registerer) (destination.Destination, error) {
			return upstream.Open(cfg.Gateway, d.Log)
		},
		History: true,
	})
}
