// Command csp-health-monitor-oci is csp-health-monitor for Oracle Cloud Infrastructure. An
// event has an id, a state and a window of its own, and is listed by compartment; what is
// open here and no longer listed is asked for by its id. What was over before it was first
// read is not announced: the lists hold history.
package main

import (
	"context"
	"errors"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and what Oracle Cloud Infrastructure needs besides.
type Config struct {
	program.Config

	Cloud CloudConfig `toml:"oci"`
}

// Validate lists everything that is wrong.
func (c Config) Validate() error { return errors.Join(config.CheckBounds(c), c.Config.Validate()) }

// purpose is the first sentence of the help.
const purpose = "csp-health-monitor-oci reports maintenance events of Oracle Cloud Infrastructure instances as maintenance of nodes."

func main() { daemon.Main(lifecycle.Agent, purpose, Config{Config: program.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	source, err := New(cfg.Cloud)
	if err != nil {
		return err
	}
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "oci", ResourceType: "instance", Source: source})
}
