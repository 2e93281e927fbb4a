// Package retained buffers on the node's disk the records that the store acknowledged
// recently, and appends them again after a failover of the store: a promoted standby may lack
// the newest records of the former primary. Nothing between the node and the store needs a
// buffer of its own, and the connector may be killed meanwhile.
package retained

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// serverPollInterval is how often the store is asked which server it is, while
	// something is kept.
	serverPollInterval = 10 * time.Second
	// deadline bounds one question, and one part of what is appended again.
	deadline = 30 * time.Second
	// batch is how many records are appended again at once, if they are no more
	// bytes than a segment has: on most nodes all that is kept. What ended a fault
	// minutes later has to come with it, or a node that is well would be taken out
	// of service in between.
	batch = 1024
	// moves is how often in a row the store may be another server during one
	// append.
	moves = 3
)

// Destination is where records go, if it can distinguish servers: store.Identified.
type Destination interface {
	AppendTo(ctx context.Context, server string, records []record.Record) (results []store.AppendResult, now string, err error)
}

// Options of a keeper.
type Options struct {
	// Dir is the folder of what is kept; it is made if it does not exist.
	Dir    string
	Policy Policy
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// Policy sets how long and how much is kept.
type Policy struct {
	// For is how long a record is kept after the server that acknowledged it was
	// last heard of.
	For time.Duration
	// Bytes is how much may be kept at the moment; beyond it the oldest are released.
	Bytes func() int64
}

// Keeper appends to a destination and keeps what that acknowledges. It is safe for
// concurrent use.
type Keeper struct {
	dest    Destination
	policy  Policy
	clock   clock.WithTicker
	log     *slog.Logger
	metrics metrics

	// turn is held for reading by appends, and for writing while kept records are
	// appended again: they go first.
	turn sync.RWMutex

	mu sync.Mutex // guards the fields below; taken after turn
	// server is the one that the destination was when it was last asked; empty before.
	server  string
	archive *archive
	// clusterWide are records that were acknowledged to a caller who showed a token of
	// its own. They are kept in memory, because tokens are not for the disk.
	clusterWide []publisherRecords

	stop context.CancelFunc
	done chan struct{}
}

type metrics struct {
	again   *prometheus.CounterVec
	dropped prometheus.Counter
	bytes   prometheus.Gauge
}

// Open keeps what the destination acknowledges, and goes on with what is kept already.
func Open(o Options, dest Destination, r prometheus.Registerer) (*Keeper, error) {
	k := &Keeper{dest: dest, policy: o.Policy, clock: o.Clock, log: o.Log, done: make(chan struct{}), metrics: metrics{
		again: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_records_reappended_total",
			Help: "Acknowledged records that were appended again after a failover to another server, by result. Records with the result appended had been lost.",
		}, []string{"result"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_connector_retained_records_dropped_total", Help: "Acknowledged records that were dropped before the end of their retention time, because of a lack of space.",
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_connector_retained_bytes", Help: "Approximate size in bytes of the acknowledged records that are retained for a failover to another server.",
		}),
	}}
	var err error
	if k.archive, err = openArchive(o.Dir, o.Log); err != nil {
		return nil, err
	}
	k.server = k.archive.server()
	r.MustRegister(k.metrics.again, k.metrics.dropped, k.metrics.bytes)
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	go k.watch(ctx)
	return k, nil
}

// Close ends the looking; what is kept stays on the disk.
func (k *Keeper) Close() error {
	k.stop()
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.archive.close()
}

// Append appends to the destination, behind what it has lost.
func (k *Keeper) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	var err error
	for range moves {
		if err = k.again(ctx); err != nil {
			return nil, err
		}
		var results []store.AppendResult
		if results, err = k.append(ctx, records); !errors.Is(err, store.ErrMoved) {
			return results, err
		}
	}
	return nil, err
}

// append appends, unless the store is another server than the one of what is kept.
func (k *Keeper) append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	k.turn.RLock()
	defer k.turn.RUnlock()
	results, now, err := k.dest.AppendTo(ctx, k.expected(), records)
	if errors.Is(err, store.ErrMoved) {
		k.move(now)
	}
	if err != nil {
		return nil, err
	}
	k.keep(ctx, now, records, results)
	return results, nil
}

// expected is the server that has acknowledged what is kept, or nobody.
func (k *Keeper) expected() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.archive.empty() && len(k.clusterWide) == 0 {
		return ""
	}
	return k.server
}

// move takes down which server the store is now.
func (k *Keeper) move(now string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.server != now {
		k.log.Warn("store server changed, appending records acknowledged by the previous one again", "server", now, "before", k.server)
	}
	k.server = now
}

// keep remembers what a server has, and releases what is old or too much. It keeps nothing
// for a destination that does not know its server.
func (k *Keeper) keep(ctx context.Context, server string, records []record.Record, results []store.AppendResult) {
	if server == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.retain(ctx, server, records, results)
	k.shed(k.clock.Now().Add(-k.policy.For))
}

// retain remembers what a server has. The caller holds the lock.
func (k *Keeper) retain(ctx context.Context, server string, records []record.Record, results []store.AppendResult) {
	now := k.clock.Now()
	k.server = server
	stored := make([]record.Record, 0, len(records))
	for i, r := range records {
		if i < len(results) && results[i] != store.Refused && results[i] != store.Counted {
			stored = append(stored, r)
		}
	}
	if len(stored) == 0 {
		return
	}
	if c, ok := ofPublisher(ctx, server, now, stored); ok {
		k.clusterWide = append(k.clusterWide, c)
	} else if err := k.archive.append(server, now, stored); err != nil {
		k.metrics.dropped.Add(float64(len(stored)))
		k.log.Warn("acknowledged records not kept for a failover", "records", len(stored), "error", err)
	}
}

// shed releases what the present server acknowledged before a time, and the oldest of
// what is too much. The caller holds the lock.
func (k *Keeper) shed(before time.Time) {
	dropped, err := k.archive.shed(k.server, before, k.policy.Bytes())
	if err != nil {
		k.log.Warn("release of records kept for a failover failed", "error", err)
	}
	k.metrics.dropped.Add(float64(dropped + k.shedClusterWide(before)))
	k.metrics.bytes.Set(float64(k.archive.bytes() + bytesOf(k.clusterWide)))
}

// watch looks for another server while something is kept.
func (k *Keeper) watch(ctx context.Context) {
	defer close(k.done)
	failing := false
	retry.Every(ctx, k.clock, serverPollInterval, func() {
		err := k.poll(ctx)
		if err != nil && ctx.Err() == nil {
			k.wait(err, failing)
		}
		failing = err != nil
	})
}

// wait is for a store that does not answer: nothing gets too old, but the spool may
// need the space.
func (k *Keeper) wait(err error, again bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shed(time.Time{})
	if !again {
		k.log.Warn("store server check failed, acknowledged records are kept", "error", err)
	}
}

// poll asks which server the store is, and appends again when it is another.
func (k *Keeper) poll(ctx context.Context) error {
	expected := k.expected()
	if expected == "" {
		return nil
	}
	_, now, err := k.queryServer(ctx, expected, nil)
	if errors.Is(err, store.ErrMoved) {
		k.move(now)
		err = nil
	}
	if err == nil {
		err = k.again(ctx)
	}
	if err != nil {
		return err
	}
	k.appendClusterWideAgain(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shed(k.clock.Now().Add(-k.policy.For))
	return nil
}

func (k *Keeper) queryServer(ctx context.Context, server string, records []record.Record) ([]store.AppendResult, string, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return k.dest.AppendTo(ctx, server, records)
}

// again appends, oldest first, all that other servers than the present one have
// acknowledged. What it has done stays done when it fails.
func (k *Keeper) again(ctx context.Context) error {
	if len(k.owed()) == 0 {
		return nil
	}
	k.turn.Lock()
	defer k.turn.Unlock()
	counts := map[store.AppendResult]int{}
	for {
		owed := k.owed()
		if len(owed) == 0 {
			break
		}
		err := k.resend(ctx, owed, counts)
		if err != nil && !errors.Is(err, store.ErrMoved) {
			return fmt.Errorf("appending records that another server acknowledged: %w", err)
		}
	}
	k.log.Warn("records acknowledged by the previous server appended again",
		"lost_before", counts[store.Appended], "there", counts[store.Duplicate], "refused", counts[store.Refused])
	return nil
}

// owed are the oldest segments that another server has acknowledged.
func (k *Keeper) owed() []*segment {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.archive.owed(k.server)
}

// resend appends segments to the present server, which acknowledges them again.
func (k *Keeper) resend(ctx context.Context, owed []*segment, counts map[store.AppendResult]int) error {
	var records []record.Record
	for _, s := range owed {
		read, err := s.read()
		if err != nil {
			k.log.Error("unreadable records kept for a failover skipped", "file", s.path, "error", err)
		}
		records = append(records, read...)
	}
	for len(records) > 0 {
		part := records[:min(batch, len(records))]
		records = records[len(part):]
		k.mu.Lock()
		server := k.server
		k.mu.Unlock()
		results, now, err := k.queryServer(ctx, server, part)
		if errors.Is(err, store.ErrMoved) {
			k.move(now)
		}
		if err != nil {
			return err
		}
		k.count(results, counts)
		// Nothing is released for it: that would be records that are still to be appended.
		k.mu.Lock()
		k.retain(context.Background(), server, part, results)
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range owed {
		if err := k.archive.remove(s); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) count(results []store.AppendResult, counts map[store.AppendResult]int) {
	for _, r := range results {
		counts[r]++
		k.metrics.again.WithLabelValues(r.String()).Inc()
	}
}
