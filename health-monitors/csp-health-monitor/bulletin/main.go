// Command bulletin is csp-health-monitor with a file for a provider: a JSON array of
// announcements that somebody else writes.
package main

import (
	"context"
	"errors"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and the file.
type Config struct {
	program.Config

	// Bulletin is the path of the file.
	Bulletin string `toml:"bulletin" bounds:"not empty" flag:"bulletin" usage:"File with the maintenance announcements, a JSON array, read again at every poll."`
}

// Validate lists everything that is wrong.
func (c Config) Validate() error { return errors.Join(config.CheckBounds(c), c.Config.Validate()) }

// purpose is the first sentence of the help.
const purpose = "csp-health-monitor-bulletin reports maintenance events that are announced in a JSON file."

func main() { daemon.Main(lifecycle.Agent, purpose, Config{Config: program.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "bulletin", ResourceType: "machine", Source: announcement.Bulletin{Path: cfg.Bulletin}})
}
