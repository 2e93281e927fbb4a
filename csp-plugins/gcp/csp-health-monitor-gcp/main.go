// Command csp-health-monitor-gcp is csp-health-monitor for Google Compute Engine.
package main

import (
	"context"
	"errors"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/maintenance/gcp"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/config"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and what Google Compute Engine needs besides.
type Config struct {
	config.Config

	Cloud gcp.Config `toml:"gcp"`
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	var missing error
	if c.Cloud.Project == "" {
		missing = errors.New("gcp.project (--project) is empty; it is the id of the project of the instances")
	}
	return errors.Join(missing, c.Cloud.Validate(), c.Config.Validate())
}

func main() { daemon.Main(lifecycle.Agent, Config{Config: config.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	source, err := gcp.New(ctx, cfg.Cloud)
	if err != nil {
		return err
	}
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "gcp", ResourceType: "gce_instance", Source: source})
}
