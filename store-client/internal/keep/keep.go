// Package keep remembers for a while what a store has acknowledged, and appends
// it again when another server has taken the store's place: a standby that was
// promoted may not have got the newest records of the server before it.
package keep

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// lookEvery is how often the store is asked which server it is, while
	// something is kept.
	lookEvery = 10 * time.Second
	// batch is how many records are appended again at once.
	batch = 256
)

// Identified is a store that can tell servers apart.
type Identified interface {
	store.Store
	store.Identified
}

// Policy says how long and how much is kept.
type Policy struct {
	// For is how long a record is kept after it was acknowledged.
	For time.Duration
	// Bytes bounds what is kept, about; beyond it the oldest are let go.
	Bytes int64
}

// Store is a store whose acknowledged records are kept.
type Store struct {
	Identified
	policy  Policy
	clock   clock.WithTicker
	log     *slog.Logger
	metrics metrics

	// turn is held for reading by appends, and for writing while kept records are
	// appended again: they go first.
	turn sync.RWMutex

	mu     sync.Mutex // guards the fields below; taken after turn
	server string
	kept   []kept
	bytes  int64

	stop context.CancelFunc
	done chan struct{}
}

// kept is an acknowledged record.
type kept struct {
	record record.Record
	size   int64
	at     time.Time
}

type metrics struct {
	again   *prometheus.CounterVec
	dropped prometheus.Counter
	bytes   prometheus.Gauge
}

// Over keeps what inner acknowledges. Closing it closes inner.
func Over(inner Identified, p Policy, c clock.WithTicker, log *slog.Logger, r prometheus.Registerer) *Store {
	ctx, stop := context.WithCancel(context.Background())
	s := &Store{Identified: inner, policy: p, clock: c, log: log, stop: stop, done: make(chan struct{}), metrics: metrics{
		again: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_store_appended_again_total",
			Help: "Acknowledged records that were appended again because another server took over, by result: appended ones were lost.",
		}, []string{"result"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_store_kept_dropped_total", Help: "Acknowledged records let go before their time, for want of room.",
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_store_kept_bytes", Help: "Bytes of acknowledged records that are kept in case another server takes over, about.",
		}),
	}}
	if r != nil {
		r.MustRegister(s.metrics.again, s.metrics.dropped, s.metrics.bytes)
	}
	go s.watch(ctx)
	return s
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.stop()
	<-s.done
	return s.Identified.Close()
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	s.know(ctx)
	s.turn.RLock()
	defer s.turn.RUnlock()
	results, err := s.Identified.Append(ctx, records)
	if err == nil {
		s.keep(records, results)
	}
	return results, err
}

// know asks for the server before it acknowledges: one that takes over in between
// must not be taken for it. If it cannot be told, whoever answers later counts as
// another one, and gets the records again.
func (s *Store) know(ctx context.Context) {
	s.mu.Lock()
	known := s.server != ""
	s.mu.Unlock()
	if known {
		return
	}
	server, err := s.Server(ctx)
	if err != nil {
		return // the append will tell
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == "" {
		s.server = server
	}
}

// keep remembers what is stored, and lets go what is old or too much.
func (s *Store) keep(records []record.Record, results []store.AppendResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for i, r := range records {
		if i < len(results) && results[i] != store.Refused {
			k := kept{r, weight(r), now}
			s.kept, s.bytes = append(s.kept, k), s.bytes+k.size
		}
	}
	s.shed(now)
}

// shed lets go from the front. The caller holds the lock.
func (s *Store) shed(now time.Time) {
	n := 0
	for ; n < len(s.kept); n++ {
		old := now.Sub(s.kept[n].at) >= s.policy.For
		if !old && s.bytes <= s.policy.Bytes {
			break
		}
		if !old {
			s.metrics.dropped.Inc()
		}
		s.bytes -= s.kept[n].size
		s.kept[n] = kept{}
	}
	s.kept = s.kept[n:]
	s.metrics.bytes.Set(float64(s.bytes))
}

// watch looks for another server while something is kept.
func (s *Store) watch(ctx context.Context) {
	defer close(s.done)
	ticker := s.clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("records that the store acknowledged are kept until it can be asked whether it still has them", "error", err)
		}
	}
}

// look asks which server the store is, and appends again when it is another.
func (s *Store) look(ctx context.Context) error {
	s.mu.Lock()
	s.shed(s.clock.Now())
	idle := len(s.kept) == 0
	if idle {
		s.server = "" // asked for again before the next append
	}
	s.mu.Unlock()
	if idle {
		return nil
	}
	server, err := s.Server(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	same := server == s.server
	s.mu.Unlock()
	if same {
		return nil
	}
	return s.again(ctx, server)
}

// again appends all that is kept, in order, before anything new.
func (s *Store) again(ctx context.Context, server string) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	all := slices.Clone(s.kept)
	s.mu.Unlock()
	counts := map[store.AppendResult]int{}
	for part := range slices.Chunk(all, batch) {
		records := make([]record.Record, len(part))
		for i, k := range part {
			records[i] = k.record
		}
		results, err := s.Identified.Append(ctx, records)
		if err != nil {
			return fmt.Errorf("appending %d records again: %w", len(all), err)
		}
		for _, r := range results {
			counts[r]++
			s.metrics.again.WithLabelValues(r.String()).Inc()
		}
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	// This server may be followed by another one soon.
	for i := range s.kept {
		s.kept[i].at = now
	}
	s.server = server
	s.log.Warn("another server took the store's place: what the one before had acknowledged was appended again",
		"server", server, "lost_before", counts[store.Appended], "there", counts[store.Duplicate], "refused", counts[store.Refused])
	return nil
}

// weight is about what a record takes in memory.
func weight(r record.Record) int64 {
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
	return int64(n)
}
