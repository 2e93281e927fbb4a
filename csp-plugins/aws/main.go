// Command aws is the provider plugin of machines that are EC2 instances.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

const name = "csp-plugin-aws"

func main() { daemon.Main(name, Default(), build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	provider, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	return cloud.Serve(d, name, cfg.Config, cfg.Proof, provider)
}
