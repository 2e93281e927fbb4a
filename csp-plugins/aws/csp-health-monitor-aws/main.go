// Command csp-health-monitor-aws is csp-health-monitor for Amazon EC2.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/maintenance/aws"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/config"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and what Amazon EC2 needs besides.
type Config struct {
	config.Config

	Cloud aws.Config `toml:"aws"`
}

func main() { daemon.Main(lifecycle.Agent, Config{Config: config.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	source, err := aws.New(ctx, cfg.Cloud)
	if err != nil {
		return err
	}
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "aws", ResourceType: "EC2", Source: source})
}
