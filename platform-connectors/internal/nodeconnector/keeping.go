package nodeconnector

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/retained"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/transform"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// What the store acknowledged is kept beside the spool for so long, and so much of
// it: room that the spool needs is the spool's.
const (
	keepFor   = 10 * time.Minute
	keepBytes = 32 << 20
	keepShare = 4
)

// keeper is a destination of which is kept what it has acknowledged.
type keeper struct {
	upstream.Destination
	kept *retained.Keeper
}

// Append implements upstream.Destination.
func (k keeper) Append(ctx context.Context, batch []record.Record) ([]store.AppendResult, error) {
	return k.kept.Append(ctx, batch)
}

// Close implements upstream.Destination.
func (k keeper) Close() error { return errors.Join(k.kept.Close(), k.Destination.Close()) }

// keepingHistorian is a keeper whose destination tells of the node's past.
type keepingHistorian struct {
	keeper
	upstream.Historian
}

// keeping keeps what a destination acknowledges, if it can tell servers apart.
func keeping(d *daemon.Daemon, cfg Config, dest upstream.Destination, q queue, metrics prometheus.Registerer) upstream.Destination {
	known, ok := dest.(retained.Destination)
	if !ok {
		return dest
	}
	policy := retained.Policy{For: keepFor, Bytes: func() int64 {
		return min(keepBytes, q.spool.MaxBytes()/keepShare, q.spool.MaxBytes()-q.spool.Bytes())
	}}
	k, err := retained.Open(retained.Options{Dir: filepath.Join(cfg.SpoolDir, "acknowledged"), Policy: policy, Clock: d.Clock, Log: d.Log}, known, metrics)
	if err != nil {
		d.Log.Error("what the store acknowledges is not kept for a failover; events go on", "error", err)
		return dest
	}
	if h, ok := dest.(upstream.Historian); ok {
		return keepingHistorian{keeper{dest, k}, h}
	}
	return keeper{dest, k}
}

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
