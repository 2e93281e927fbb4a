package nodeconnector

import (
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/confirmation"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodecache"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/transform"
)

// newFollower follows the spool for faults that wait to be confirmed, or is nil where no
// rule can come: its reader is there before anything is released.
func newFollower(d *daemon.Daemon, cfg Config, q queue, node *nodecache.Node, stages *transform.Runner) *confirmation.Follower {
	path := filepath.Join(cfg.SpoolDir, "unconfirmed.json")
	if cfg.Pipeline == "" {
		if err := confirmation.Discard(path); err != nil {
			d.Log.Error("what waited to be confirmed is still there", "error", err)
		}
		return nil
	}
	follower := &confirmation.Follower{
		Path: path, Spool: q.spool, Reader: q.spool.Reader("confirmation"),
		Judge: stages.Judge, Clock: d.Clock, Log: d.Log, Metrics: confirmation.NewMetrics(d.Registry),
	}
	follower.Load()
	stages.OnChange(follower.Waker())
	node.OnChange(func() { follower.See(node.Object()) })
	q.spool.Try(follower.Try)
	return follower
}

func startFollower(d *daemon.Daemon, follower *confirmation.Follower) {
	if follower != nil {
		d.Go("confirmation", follower.Run)
		d.Ready("confirmation", follower.Ready)
	}
}
