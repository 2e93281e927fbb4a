// Command aws is the provider plugin of machines that are EC2 instances.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

const name = "csp-plugin-aws"

// purpose is the first sentence of the help.
const purpose = "csp-plugin-aws is the provider plugin for nodes that are Amazon EC2 instances."

func main() { daemon.Main(name, purpose, Default(), build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	provider, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	return cloud.Serve(d, name, cfg.Config, cfg.Proof, provider)
}
