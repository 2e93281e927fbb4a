// Command csp-health-monitor-aws is csp-health-monitor for Amazon EC2. It asks EC2 itself
// for the scheduled events of instances, and AWS Health for what EC2 does not show.
//
// AWS reports most maintenance twice, under ids that have nothing in common. One
// maintenance is one announcement here: that of EC2, which has the instance, the window
// and its end, and which lists all of them every time. An event of AWS Health whose type
// EC2 shows too (see Codes) is the same maintenance if the instance is the same and the
// windows meet; EC2's word on state and window wins, Health's text is kept. Where EC2
// shows nothing, Health's event is announced under its own id, and keeps that id if EC2
// shows it later (Question.Open contains it).
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// Config is that of every provider, and what Amazon EC2 needs besides.
type Config struct {
	program.Config

	Cloud CloudConfig `toml:"aws"`
}

// purpose is the first sentence of the help.
const purpose = "csp-health-monitor-aws reports scheduled events of Amazon EC2 and AWS Health as maintenance of nodes."

func main() { daemon.Main(lifecycle.Agent, purpose, Config{Config: program.Default()}, build) }

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	source, err := New(ctx, cfg.Cloud)
	if err != nil {
		return err
	}
	return program.Build(ctx, d, cfg.Config, program.Cloud{CSP: "aws", ResourceType: "EC2", Source: source})
}
