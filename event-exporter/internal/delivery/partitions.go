package delivery

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/time/rate"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// catchUpAge is how old a record is that is sent at the bounded rate: one of
// the backfill, or of a time when the receiver or the exporter was away.
const catchUpAge = 5 * time.Minute

// partition is what is known of the sending of some nodes' records. A node's records
// are all in one partition, and a partition sends one request at a time: that keeps a
// node's events in order. Only the partition's handler, of which one runs at a time,
// uses it.
type partition struct {
	name   string
	pauses *backoff.ExponentialBackOff
	// notBefore is when the next request may be sent after a failure.
	notBefore time.Time
	why       string
	// size is how many events the next request may carry.
	size int
}

// newPartitions makes the partitions, by their names.
func (ex *Exporter) newPartitions() map[string]*partition {
	out := map[string]*partition{}
	for i := range ex.Partitions {
		out[partitionName(i)] = &partition{name: partitionName(i), size: ex.Batch, pauses: &backoff.ExponentialBackOff{
			InitialInterval: ex.Pauses.Initial, MaxInterval: ex.Pauses.Longest, Multiplier: ex.Pauses.Multiplier,
			RandomizationFactor: backoff.DefaultRandomizationFactor,
		}}
	}
	return out
}

func partitionName(i int) string { return fmt.Sprintf("partition-%02d", i) }

// partitionOf names the partition of a record's node.
func (ex *Exporter) partitionOf(r record.Record) string {
	h := fnv.New32a()
	h.Write([]byte(r.Event.NodeName))
	return partitionName(int(h.Sum32() % uint32(ex.Partitions))) //nolint:gosec // the number of partitions is a small positive one
}

// turn is the record that was read and waits for its turn at the bounded rate.
type turn struct {
	limit *rate.Limiter // nil is no bound

	mu         sync.Mutex
	acceptedAt time.Time // when it was accepted; zero is none
}

func (t *turn) accept(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acceptedAt = at
}

// oldest is when a held record was accepted.
func (t *turn) oldest() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acceptedAt
}

// pace bounds the rate of old records, so that a receiver that was away, or is
// new, is not flooded.
func (ex *Exporter) pace(ctx context.Context, r record.Record) {
	now := ex.Clock.Now()
	if ex.turn.limit == nil || now.Sub(r.CreatedAt) < catchUpAge {
		return
	}
	ex.turn.accept(r.CreatedAt)
	defer ex.turn.accept(time.Time{})
	retry.Sleep(ctx, ex.Clock, ex.turn.limit.ReserveN(now, 1).DelayFrom(now))
}

// weight is about what a record takes in memory.
func weight(r record.Record) int {
	n := 1024 + len(r.Event.Message)
	for _, e := range r.Event.EntitiesImpacted {
		n += 32 + len(e.EntityType) + len(e.EntityValue)
	}
	for _, c := range r.Event.ErrorCode {
		n += 16 + len(c)
	}
	for k, v := range r.Event.Metadata {
		n += 64 + len(k) + len(v)
	}
	return n
}
