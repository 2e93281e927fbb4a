// Command azure is the provider plugin of machines that are virtual machines of Azure,
// alone or in scale sets.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

const name = "csp-plugin-azure"

// purpose is the first sentence of the help.
const purpose = "csp-plugin-azure is the provider plugin for nodes that are Azure virtual machines or scale set instances."

func main() { daemon.Main(name, purpose, Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	provider, err := New(cfg)
	if err != nil {
		return err
	}
	return cloud.ServeAsync(d, name, cfg.Config, cfg.Proof, provider)
}
