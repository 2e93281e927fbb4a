package front

import (
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/confirmation"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/sighting"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/transform"
)

// newDesk follows the spool for faults that wait to be confirmed, or is nil where no
// rule can come: its reader is there before anything is released.
func newDesk(d *daemon.Daemon, cfg Config, q queue, node *sighting.Node, stages *transform.Runner) *confirmation.Desk {
	path := filepath.Join(cfg.SpoolDir, "unconfirmed.json")
	if cfg.Pipeline == "" {
		if err := confirmation.Discard(path); err != nil {
			d.Log.Error("what waited to be confirmed is still there", "error", err)
		}
		return nil
	}
	desk := &confirmation.Desk{
		Path: path, Spool: q.spool, Reader: q.spool.Reader("confirmation"),
		Judge: stages.Judge, Clock: d.Clock, Log: d.Log, Metrics: confirmation.NewMetrics(d.Registry),
	}
	desk.Load()
	stages.OnChange(desk.Bell())
	node.OnChange(func() { desk.See(node.Object()) })
	q.spool.Try(desk.Try)
	return desk
}

func startDesk(d *daemon.Daemon, desk *confirmation.Desk) {
	if desk != nil {
		d.Go("confirmation", desk.Run)
		d.Ready("confirmation", desk.Ready)
	}
}
