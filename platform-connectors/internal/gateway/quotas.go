package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// trickle is what a node may bring in the long run, in bytes a second, when its
	// quota and the reserve are spent, trickleBurst at once; a record counts as
	// leastRecord at least.
	trickle, trickleBurst, leastRecord = 1 << 10, 256 << 10, 1 << 10
	// minReportedShare is the share of its quota that a node has to bring since the last
	// exchange to make the next one due, and in a day to be reported to other gateways.
	minReportedShare = 1.0 / 8
	// exchangeEvery is the time between two exchanges with the other gateways,
	// exchangeLeast the least.
	exchangeEvery, exchangeLeast = time.Minute, 5 * time.Second
	// exchangeDeadline bounds one exchange.
	exchangeDeadline = 30 * time.Second
	// maxShares bounds the nodes whose share is a metric.
	maxShares = 100
)

// Days is the store of what gateways note of nodes.
type Days interface {
	store.UseReader
	store.UseWriter
}

// Quotas bounds what is stored of each node in a day, over all gateways: each notes in the
// store what it has taken, and learns what the others have.
type Quotas struct {
	Limits forwardpolicy.Quota
	// Gateway names this gateway; one that is started again in its place has the name too.
	Gateway string
	Days    Days
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics

	trickle Shares
	outage  retry.Outage
	due     retry.Wake

	mu    sync.Mutex
	day   string
	nodes map[string]*usage
	// resumed: what was noted under this name before its start is counted.
	resumed bool
}

// usage is what a node has brought on a day: through this gateway, and through others.
type usage struct {
	own, others forwardpolicy.Use
	// reported is what of its own the other gateways know.
	reported forwardpolicy.Use
	counted  store.CountedUse
}

// NewQuotas prepares quotas; without limits nothing is bounded.
func NewQuotas(q *Quotas) *Quotas {
	q.trickle = Shares{PerSecond: trickle, Burst: trickleBurst, Clock: q.Clock}
	q.due, q.nodes = retry.NewWake(), map[string]*usage{}
	return q
}

// off reports whether nothing is bounded.
func (q *Quotas) off() bool { return q == nil || q.Limits == (forwardpolicy.Quota{}) }

// spent reports whether a node has used up its quota and the reserve.
func (q *Quotas) spent(node string) bool {
	return !q.off() && q.Limits.Level(q.use(node)) == forwardpolicy.Spent
}

// use is what a node has brought today.
func (q *Quotas) use(node string) forwardpolicy.Use {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u := q.today()[node]; u != nil {
		return u.own.Plus(u.others)
	}
	return forwardpolicy.Use{}
}

// today is what nodes have brought; it is empty when a day begins.
func (q *Quotas) today() map[string]*usage {
	if day := q.Clock.Now().UTC().Format(store.DayFormat); day != q.day {
		q.day, q.nodes = day, map[string]*usage{}
	}
	return q.nodes
}

// note adds what the store has taken of a node, and what was counted.
func (q *Quotas) note(node string, stored forwardpolicy.Use, counted, bytes int64) {
	if q.off() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(node)
	u.own = u.own.Plus(stored)
	if counted > 0 {
		u.counted = u.counted.Add(counted, bytes, q.Clock.Now().UTC())
	}
	if q.Limits.Share(forwardpolicy.Use{Bytes: u.own.Bytes - u.reported.Bytes, Records: u.own.Records - u.reported.Records}) >= minReportedShare {
		q.due.Call()
	}
}

func (q *Quotas) of(node string) *usage {
	nodes := q.today()
	u := nodes[node]
	if u == nil {
		u = &usage{}
		nodes[node] = u
	}
	return u
}

// Run exchanges with the other gateways what nodes have brought, until ctx ends.
func (q *Quotas) Run(ctx context.Context) error {
	if q.off() {
		return nil
	}
	ticker := q.Clock.NewTicker(exchangeEvery)
	defer ticker.Stop()
	for {
		err := q.exchange(ctx)
		if begins, _ := q.outage.Note(err); begins {
			q.Log.Warn("usage of nodes through other gateways unknown, limits use the counts of this gateway only", "error", err)
		}
		retry.Sleep(ctx, q.Clock, exchangeLeast)
		select {
		case <-ctx.Done():
			// What came since the last exchange outlives this gateway.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeLeast)
			defer cancel()
			if err := q.exchange(last); err != nil {
				q.Log.Warn("final usage counts of nodes not saved", "error", err)
			}
			return nil
		case <-ticker.C():
		case <-q.due:
		}
	}
}

// exchange learns what nodes have brought through other gateways, and notes what they
// have through this one.
func (q *Quotas) exchange(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeDeadline)
	defer cancel()
	days, err := store.ReadUse(ctx, q.Days)
	if days == nil {
		return err
	}
	if mine, worth := q.learn(days); worth {
		err = errors.Join(err, store.WriteUse(ctx, q.Days, mine, q.Clock.Now().UTC()))
	}
	return err
}

// learn takes what gateways have noted and returns what this one is to note, if there is
// anything.
func (q *Quotas) learn(days []store.UseDay) (mine store.UseDay, worth bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range q.today() {
		u.others = forwardpolicy.Use{}
	}
	for _, d := range days {
		if d.Day != q.day || d.Gateway == q.Gateway && q.resumed {
			continue
		}
		for node, n := range d.Nodes {
			u, brought := q.of(node), forwardpolicy.Use{Bytes: n.Bytes, Records: n.Records}
			if d.Gateway == q.Gateway {
				u.own, u.counted = u.own.Plus(brought), u.counted.Plus(n.Counted)
				continue
			}
			u.others = u.others.Plus(brought)
		}
	}
	q.resumed = true
	mine = store.UseDay{Gateway: q.Gateway, Day: q.day, Nodes: map[string]store.NodeUse{}}
	for node, u := range q.nodes {
		if q.Limits.Share(u.own) >= minReportedShare || u.counted.Records > 0 {
			mine.Nodes[node] = store.NodeUse{Bytes: u.own.Bytes, Records: u.own.Records, Counted: u.counted}
		}
		u.reported = u.own
	}
	q.measure()
	return mine, len(mine.Nodes) > 0
}

// measure sets the shares of the nodes that have used most.
func (q *Quotas) measure() {
	type one struct {
		node  string
		share float64
	}
	var all []one
	for node, u := range q.nodes {
		if s := q.Limits.Share(u.own.Plus(u.others)); s >= 0.5 {
			all = append(all, one{node, s})
		}
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Compare(b.share, a.share) })
	q.Metrics.share.Reset()
	for _, x := range all[:min(len(all), maxShares)] {
		q.Metrics.share.WithLabelValues(x.node).Set(x.share)
	}
}

// problem is the text that a connector gets for a record that is counted.
func (q *Quotas) problem(node string) string {
	return fmt.Sprintf("node %s has sent more than the daily limit of %d records or %d bytes: PERSIST_ONLY events and repeats are counted and not stored",
		node, q.Limits.Records, q.Limits.Bytes)
}
