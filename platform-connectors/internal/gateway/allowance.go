package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// storedRecords is what is known to be stored of a connection's records.
type storedRecords struct {
	mu     sync.Mutex
	stored forwardpolicy.Stored
	// missed: records were stored which it does not know of, by a call within the quota. What
	// they ended is not known either.
	missed atomic.Bool
}

// allowance is what of one call may be stored. Its methods may be called on nil, which
// stores everything.
type allowance struct {
	quotas *Quotas
	node   string
	now    time.Time
	// use is what the node has brought, with what this call brings.
	use  forwardpolicy.Use
	conn *connection
	// stored is the connection's, and locked, while the node is beyond its quota.
	stored *storedRecords
	// sizes are those of the records that go to the store; tardy those of them that
	// go at a trickle.
	sizes []int64
	tardy int64
	// counted are the records that do not, of so many bytes.
	counted, bytes int64
	verdicts       map[forwardpolicy.Verdict]int
}

// allow begins what a call may have stored by a store that it believes to be a server.
// Cluster-wide publishers have no quota.
func (g *Gateway) allow(c *call, server string) *allowance {
	if g.Quotas.off() || c.caller.Publisher != nil {
		return nil
	}
	a := &allowance{quotas: g.Quotas, node: c.caller.Node, now: g.Clock.Now(), use: g.Quotas.use(c.caller.Node), conn: connectionOf(c.ctx)}
	a.miss()
	if a.level() > forwardpolicy.Within {
		a.begin()
		s := &a.stored.stored
		if len(metadata.ValueFromIncomingContext(c.ctx, ResetHeader)) > 0 {
			s.Forget()
		}
		if server != "" && s.Server != server {
			*s = forwardpolicy.Stored{Server: server}
		}
	}
	return a
}

// begin takes what is known of the connection for this call alone.
func (a *allowance) begin() {
	if a.stored != nil {
		return
	}
	a.stored = &storedRecords{}
	if a.conn != nil {
		a.stored = &a.conn.stored
	}
	a.stored.mu.Lock()
	if a.stored.missed.Swap(false) {
		a.stored.stored.Forget()
	}
}

// miss notes that a call within the quota stores records that nobody remembers.
func (a *allowance) miss() {
	if a.conn != nil && a.stored == nil && a.level() == forwardpolicy.Within {
		a.conn.stored.missed.Store(true)
	}
}

// end lets the connection's next call go on.
func (a *allowance) end() {
	if a != nil && a.stored != nil {
		a.stored.mu.Unlock()
	}
}

func (a *allowance) level() forwardpolicy.Level { return a.quotas.Limits.Level(a.use) }

// decide decides what becomes of a record of so many bytes; its error is for the caller and
// holds for the whole call.
func (a *allowance) decide(r record.Record, size int64) (record.Record, forwardpolicy.Verdict, error) {
	if a == nil {
		return r, forwardpolicy.Store, nil
	}
	level := a.level()
	verdict := forwardpolicy.Store
	if level > forwardpolicy.Within {
		a.begin()
		r, verdict = a.stored.stored.Decide(level, r, a.now)
	}
	a.count(verdict, size)
	if verdict.Counted() {
		return r, verdict, nil
	}
	if level == forwardpolicy.Spent {
		if wait, ok := a.quotas.trickle.Spend(a.node, 0); !ok {
			a.stored.stored.Forget()
			return r, verdict, later(wait, "node %s has sent more than twice the daily limit of %d records or %d bytes: its new faults and recoveries are stored at %d bytes per second, "+
				"nothing was accepted, retry later", a.node, a.quotas.Limits.Records, a.quotas.Limits.Bytes, trickle)
		}
		a.tardy += max(size, leastRecord)
	}
	a.use = a.use.Plus(forwardpolicy.Use{Bytes: size, Records: 1})
	a.sizes = append(a.sizes, size)
	return r, verdict, nil
}

// count notes a verdict.
func (a *allowance) count(verdict forwardpolicy.Verdict, size int64) {
	if verdict == forwardpolicy.Store {
		return
	}
	if a.verdicts == nil {
		a.verdicts = map[forwardpolicy.Verdict]int{}
	}
	a.verdicts[verdict]++
	if verdict.Counted() {
		a.counted, a.bytes = a.counted+1, a.bytes+size
	}
}

// failed is called when the store did not take what it was given.
func (a *allowance) failed() {
	if a != nil && a.stored != nil {
		a.stored.stored.Forget()
	}
}

// settle notes what a store has taken. If this is another store than the one that has the
// earlier records of the connection, what was left out as a repeat may not be there, and the
// call has to come again.
func (a *allowance) settle(results []store.AppendResult, server string) error {
	if a == nil {
		return nil
	}
	a.miss()
	if a.stored != nil && server != "" {
		s := &a.stored.stored
		if s.Server != "" && s.Server != server && a.verdicts[forwardpolicy.Repeat] > 0 {
			*s = forwardpolicy.Stored{Server: server}
			return status.Error(codes.Unavailable, "another store server has taken over, retry")
		}
		s.Server = server
	}
	var taken forwardpolicy.Use
	for i, result := range results {
		if result == store.Appended {
			taken = taken.Plus(forwardpolicy.Use{Bytes: a.sizes[i], Records: 1})
		}
	}
	if a.tardy > 0 {
		a.quotas.trickle.Spend(a.node, a.tardy)
	}
	a.quotas.note(a.node, taken, a.counted, a.bytes)
	a.quotas.Metrics.countedBytes.Add(float64(a.bytes))
	for verdict, n := range a.verdicts {
		a.quotas.Metrics.overQuota.WithLabelValues(string(verdict)).Add(float64(n))
	}
	return nil
}

// Shares bounds what one node brings and asks for at once, so that none keeps the store
// from the others. What it leaves in the store in a day is bounded by its quota.
type Shares struct {
	// PerSecond is what a node may bring in the long run, Burst at once; in bytes.
	PerSecond, Burst int64
	Clock            clock.PassiveClock

	mu sync.Mutex
	of map[string]share
}

// share is what a node has brought and not worked off yet.
type share struct {
	bytes int64
	at    time.Time
}

// Spend notes n bytes of a node; ok is false if it has brought too much before and has
// to wait, about as long as wait.
func (s *Shares) Spend(node string, n int64) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	if s.of == nil {
		s.of = map[string]share{}
	}
	if _, known := s.of[node]; !known && len(s.of) >= maxPeers {
		for other, o := range s.of {
			if s.left(o, now) == 0 {
				delete(s.of, other)
			}
		}
	}
	bytes := s.left(s.of[node], now)
	if bytes >= s.Burst {
		return time.Duration((bytes-s.Burst)/s.PerSecond+1) * time.Second, false
	}
	s.of[node] = share{bytes + n, now}
	return 0, true
}

// left is what of a share is not worked off at a time.
func (s *Shares) left(o share, now time.Time) int64 {
	since := now.Sub(o.at)
	if since > time.Hour {
		return 0
	}
	return max(o.bytes-int64(since.Seconds()*float64(s.PerSecond)), 0)
}

// nodeReceives bounds what the calls of one node hold while they are received, in bytes,
// unless one request alone is larger: a node that sends slowly holds no more.
const nodeReceives = 2 << 20

// Memory bounds the bytes of requests that a gateway holds, from before they are received
// until they are answered. Who waits is served in the order of coming.
type Memory struct {
	all *semaphore.Weighted
	// large is the part of all that requests of more than nodeReceives may have
	// together, so that a few of them never keep all others waiting.
	large *semaphore.Weighted
}

// NewMemory bounds the requests to so many bytes, at least MaxMessage.
func NewMemory(bytes int64) *Memory {
	return &Memory{all: semaphore.NewWeighted(bytes), large: semaphore.NewWeighted(max(bytes/2, MaxMessage))}
}

// Acquire waits for n bytes, at most MaxMessage, until ctx ends. The caller releases them.
func (m *Memory) Acquire(ctx context.Context, n int64) (release func(), err error) {
	isLarge := n > nodeReceives
	if isLarge {
		if err := m.large.Acquire(ctx, n); err != nil {
			return nil, err
		}
	}
	if err := m.all.Acquire(ctx, n); err != nil {
		if isLarge {
			m.large.Release(n)
		}
		return nil, err
	}
	return func() {
		m.all.Release(n)
		if isLarge {
			m.large.Release(n)
		}
	}, nil
}
