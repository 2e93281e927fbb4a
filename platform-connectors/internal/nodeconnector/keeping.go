package nodeconnector

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/retained"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/sink"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/transform"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// What the store acknowledged is kept beside the spool for so long, and so much of
// it: room that the spool needs is the spool's.
const (
	keepFor   = 10 * time.Minute
	keepBytes = 32 << 20
	keepShare = 4
)

// destination is where the connector's records go: the gateways, and what is kept of what
// they acknowledge.
type destination interface {
	forwarder.Sink
	sink.History
	retained.Destination
	Close() error
}

// keeper is a destination of which is kept what it has acknowledged.
type keeper struct {
	destination
	retained *retained.Keeper
}

// Append implements forwarder.Sink.
func (k keeper) Append(ctx context.Context, batch []record.Record) ([]store.AppendResult, error) {
	return k.retained.Append(ctx, batch)
}

// Close implements destination.
func (k keeper) Close() error { return errors.Join(k.retained.Close(), k.destination.Close()) }

// keeping keeps what a destination acknowledges.
func keeping(d *daemon.Daemon, cfg Config, dest destination, q queue) destination {
	policy := retained.Policy{For: keepFor, Bytes: func() int64 {
		return min(keepBytes, q.spool.MaxBytes()/keepShare, q.spool.MaxBytes()-q.spool.Bytes())
	}}
	k, err := retained.Open(retained.Options{Dir: filepath.Join(cfg.SpoolDir, "acknowledged"), Policy: policy, Clock: d.Clock, Log: d.Log}, dest, d.Registry)
	if err != nil {
		d.Log.Error("acknowledged records not kept for a failover, event delivery continues", "error", err)
		return dest
	}
	return keeper{dest, k}
}

// newFollower follows the spool for faults that wait to be confirmed, or is nil where no
// rule can come: its reader is there before anything is released.
func newFollower(d *daemon.Daemon, cfg Config, q queue, node *nodeclient.OwnNode, stages *transform.Runner) *transform.Confirmation {
	path := filepath.Join(cfg.SpoolDir, "unconfirmed.json")
	if cfg.Pipeline == "" {
		if err := transform.Discard(path); err != nil {
			d.Log.Error("removal of unconfirmed faults failed", "error", err)
		}
		return nil
	}
	follower := &transform.Confirmation{
		Path: path, Spool: q.spool, Reader: q.spool.Reader("confirmation"),
		Evaluate: stages.Evaluate, Clock: d.Clock, Log: d.Log, Metrics: transform.NewConfirmationMetrics(d.Registry),
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
