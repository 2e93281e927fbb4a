package nodeconnector

import (
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/transform"
)

// newFollower follows the spool for faults that wait to be confirmed, or is nil where no
// rule can come: its reader is there before anything is released.
func newFollower(d *daemon.Daemon, cfg Config, q queue, node *nodeclient.OwnNode, stages *transform.Runner) *transform.Confirmation {
	path := filepath.Join(cfg.SpoolDir, "unconfirmed.json")
	if cfg.Pipeline == "" {
		if err := transform.Discard(path); err != nil {
			d.Log.Error("what waited to be confirmed is still there", "error", err)
		}
		return nil
	}
	follower := &transform.Confirmation{
		Path: path, Spool: q.spool, Reader: q.spool.Reader("confirmation"),
		Judge: stages.Judge, Clock: d.Clock, Log: d.Log, Metrics: transform.NewConfirmationMetrics(d.Registry),
	}
	follower.Load()
	stages.OnChange(follower.Waker())
	node.OnChange(func() { follower.See(node.Object()) })
	q.spool.Try(follower.Try)
	return follower
}

func startFollower(d *daemon.Daemon, follower *transform.Confirmation) {
	if follower != nil {
		d.Go("confirmation", follower.Run)
		d.Ready("confirmation", follower.Ready)
	}
}
