// Command csp-health-monitor-gcp is csp-health-monitor for Google Compute Engine. It asks
// the instances themselves, which show one upcoming maintenance each, and the system event
// audit log, which reports the maintenance of machine types that do not show it, the end of
// a maintenance, and what came unannounced.
//
// Neither gives a maintenance an id. It is the instance and the latest moment at which
// the maintenance may begin, which does not move when it is rescheduled; so all lines of
// the log and all answers of the instance have one id. What was over before it was first
// read is not announced.
package main

import (
	"context"
	"errors"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and what Google Compute Engine needs besides.
type Config struct {
	program.Config

	Cloud CloudConfig `toml:"gcp"`
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	return errors.Join(config.CheckBounds(c), c.Cloud.checkOrigins(), c.Config.Validate())
}

// purpose is the first sentence of the help.
const purpose = "csp-health-monitor-gcp reports upcoming maintenance of Compute Engine instances as maintenance of nodes."

func main() { daemon.Main(lifecycle.Agent, purpose, Config{Config: program.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	source, err := New(ctx, cfg.Cloud)
	if err != nil {
		return err
	}
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "gcp", ResourceType: "gce_instance", Source: source})
}
