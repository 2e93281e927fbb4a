// Command csp-health-monitor-oci is csp-health-monitor for Oracle Cloud Infrastructure.
package main

import (
	"context"
	"errors"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/maintenance/oci"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/config"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and what Oracle Cloud Infrastructure needs besides.
type Config struct {
	config.Config

	Cloud oci.Config `toml:"oci"`
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	var missing error
	if len(c.Cloud.Compartments) == 0 {
		missing = errors.New("oci.compartments (--compartments) is empty; instances are listed by compartment")
	}
	return errors.Join(missing, c.Config.Validate())
}

func main() { daemon.Main(lifecycle.Agent, Config{Config: config.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	source, err := oci.New(cfg.Cloud)
	if err != nil {
		return err
	}
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "oci", ResourceType: "instance", Source: source})
}
