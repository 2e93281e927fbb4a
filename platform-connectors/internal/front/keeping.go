package front

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/kept"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/records"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// What the store acknowledged is kept beside the spool for so long, and so much of
// it: room that the spool needs is the spool's.
const (
	keepFor   = 10 * time.Minute
	keepBytes = 32 << 20
	keepShare = 4
)

// keeper is a place of which is kept what it has acknowledged.
type keeper struct {
	records.Place
	kept *kept.Keeper
}

// Append implements records.Place.
func (k keeper) Append(ctx context.Context, batch []record.Record) ([]store.AppendResult, error) {
	return k.kept.Append(ctx, batch)
}

// Close implements records.Place.
func (k keeper) Close() error { return errors.Join(k.kept.Close(), k.Place.Close()) }

// keepingHistorian is a keeper whose place tells of the node's past.
type keepingHistorian struct {
	keeper
	records.Historian
}

// keeping keeps what a place acknowledges, if it can tell servers apart.
func keeping(d *daemon.Daemon, cfg Config, place records.Place, q queue, metrics prometheus.Registerer) records.Place {
	known, ok := place.(kept.Place)
	if !ok {
		return place
	}
	policy := kept.Policy{For: keepFor, Bytes: func() int64 {
		return min(keepBytes, q.spool.MaxBytes()/keepShare, q.spool.MaxBytes()-q.spool.Bytes())
	}}
	k, err := kept.Open(kept.Options{Dir: filepath.Join(cfg.SpoolDir, "acknowledged"), Policy: policy, Clock: d.Clock, Log: d.Log}, known, metrics)
	if err != nil {
		d.Log.Error("what the store acknowledges is not kept for a failover; events go on", "error", err)
		return place
	}
	if h, ok := place.(records.Historian); ok {
		return keepingHistorian{keeper{place, k}, h}
	}
	return keeper{place, k}
}
