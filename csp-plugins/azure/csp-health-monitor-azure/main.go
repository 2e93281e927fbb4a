// Command csp-health-monitor-azure is csp-health-monitor for Azure. It asks for the
// instance views of machines and of instances of uniform scale sets, and for the updates
// of Microsoft.Maintenance, all of them at once, through Azure Resource Graph (the API of
// Microsoft.Maintenance itself is asked for one machine at a time).
//
// One maintenance that both report is one announcement: that of the same machine whose
// times meet. It keeps the id under which it is open; a new one has the id of the
// notification.
//
// Scheduled Events are not read: their metadata service answers inside of each machine
// only, minutes before. Events of Resource Health are not read either: they report what has
// happened to a machine, not what will.
package main

import (
	"context"
	"errors"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and what Azure needs besides.
type Config struct {
	program.Config

	Cloud CloudConfig `toml:"azure"`
}

// Validate lists everything that is wrong.
func (c Config) Validate() error { return errors.Join(config.CheckBounds(c), c.Config.Validate()) }

// purpose is the first sentence of the help.
const purpose = "csp-health-monitor-azure reports planned maintenance and updates of Azure virtual machines as maintenance of nodes."

func main() { daemon.Main(lifecycle.Agent, purpose, Config{Config: program.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	source, err := New(cfg.Cloud)
	if err != nil {
		return err
	}
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "azure", ResourceType: "virtualMachine", Source: source})
}
