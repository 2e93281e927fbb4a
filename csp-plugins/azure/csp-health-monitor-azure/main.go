// Command csp-health-monitor-azure is csp-health-monitor for Azure.
package main

import (
	"context"
	"errors"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/maintenance/azure"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/config"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and what Azure needs besides.
type Config struct {
	config.Config

	Cloud azure.Config `toml:"azure"`
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	var missing error
	if c.Cloud.Subscription == "" {
		missing = errors.New("azure.subscription (--subscription) is empty; it is the id of that of the machines")
	}
	return errors.Join(missing, c.Config.Validate())
}

func main() { daemon.Main(lifecycle.Agent, Config{Config: config.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	source, err := azure.New(cfg.Cloud)
	if err != nil {
		return err
	}
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "azure", ResourceType: "virtualMachine", Source: source})
}
