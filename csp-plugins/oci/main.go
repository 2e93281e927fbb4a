// Command oci is the provider plugin of machines that are instances of Oracle Cloud
// Infrastructure.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

const name = "csp-plugin-oci"

// purpose is the first sentence of the help.
const purpose = "csp-plugin-oci is the provider plugin for nodes that are Oracle Cloud Infrastructure instances."

func main() { daemon.Main(name, purpose, Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	provider, err := New(cfg)
	if err != nil {
		return err
	}
	return cloud.ServeAsync(d, name, cfg.Config, cfg.Proof, provider)
}
