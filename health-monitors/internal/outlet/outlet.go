// Package outlet is where a monitor's events wait for the node's platform connector,
// and how they go there.
package outlet

import (
	"context"
	"path/filepath"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Config is where the events of a monitor wait and go.
type Config struct {
	// Agent is the monitor's name, Prefix that of its metrics.
	Agent, Prefix string
	// StateDir holds the outbox, MiB bounds it.
	StateDir string
	MiB      int
	// Socket is the platform connector; TokenPath is as report.Dial takes it.
	Socket, TokenPath string
	// Replaced is logged when the outbox was unreadable: what becomes of what it held.
	Replaced string
}

// Open opens the outbox and begins to publish what is in it: what can fail without it
// comes first.
func Open(d *daemon.Daemon, c Config) (*report.Outbox, error) {
	outbox, err := report.Open(filepath.Join(c.StateDir, "outbox.db"), report.Options{Clock: d.Clock, MaxBytes: int64(c.MiB) << 20})
	if err != nil {
		return nil, err
	}
	d.OnStop("outbox", func(context.Context) error { return outbox.Close() })
	if outbox.Origin() == report.Replaced {
		d.Log.Error(c.Replaced, "stateDir", c.StateDir, "kept", "outbox.db.damaged")
	}
	conn, err := report.Dial(c.Socket, c.TokenPath)
	if err != nil {
		return nil, err
	}
	d.OnStop("connector", func(context.Context) error { return conn.Close() })
	publisher := &report.Publisher{
		Name: c.Agent, Outbox: outbox, Connector: protos.NewPlatformConnectorClient(conn), Clock: d.Clock,
		Log: d.Log, Metrics: report.NewMetrics(d.Registry, c.Prefix, outbox, d.Clock),
	}
	d.Ready("connector", publisher.Ready)
	d.Go("publisher", publisher.Run)
	return outbox, nil
}
