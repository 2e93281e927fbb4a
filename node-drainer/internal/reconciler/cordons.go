package reconciler

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// maxPendingRead is how many faults that are not evaluated, the oldest first, are read to
	// detect a burst, and pendingReadInterval how old what is known of them may be.
	maxPendingRead      = 64
	pendingReadInterval = 50 * time.Millisecond
	// maxUnmarked bounds the evaluated faults that are remembered until they are marked.
	maxUnmarked = 4096
)

// cordons knows which faults are not marked on their Nodes yet, and holds the nodes whose
// drains stand back for them. Nothing is lost with it: a drain that stands back is owed.
type cordons struct {
	records store.Lister
	clock   clock.Clock

	readMu sync.Mutex // one look at the store at a time
	readAt time.Time

	mu sync.Mutex
	// evaluated are the faults of which the feed delivered the verdict and not yet the mark,
	// pendingEvaluation those that the store had when it was read last, by their ids.
	evaluated, pendingEvaluation map[string]decision.Unmarked
	// waiting are the nodes that stand back, since when.
	waiting map[string]time.Time
	changed chan struct{}
}

func newCordons(records store.Lister, c clock.Clock) *cordons {
	return &cordons{
		records: records, clock: c, evaluated: map[string]decision.Unmarked{}, waiting: map[string]time.Time{}, changed: make(chan struct{}, 1),
	}
}

// PendingEvaluation selects the faults that nobody has evaluated yet.
func PendingEvaluation() record.Selector {
	s := record.BacklogOfNode("")
	s.Name, s.Verdicts, s.Healthy = "PendingEvaluation", []record.Reason{""}, record.No()
	return s
}

// unmarked reports whether a record is in quarantine, its Node is not known to be marked for
// it, and its drain has not begun.
func unmarked(r record.Record) bool {
	return record.InQuarantine(r) && record.Open(r) && r.Status.QuarantineFinishTimestamp == nil &&
		r.Status.UserPodsEvictionStatus.Status == record.EvictionUnset
}

// hear takes a delivery of the feed in, and reports whether its record is unmarked.
func (c *cordons) hear(r record.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !unmarked(r) {
		delete(c.evaluated, r.ID)
		return false
	}
	if len(c.evaluated) < maxUnmarked {
		c.evaluated[r.ID] = decision.Unmarked{Node: r.Event.NodeName, Since: c.clock.Now()}
	}
	return true
}

// standBack reports whether the drain of a node, which has not begun as far as its notes
// show, has to stand back: once, and until source enqueues the node. A store that cannot be
// read shows no burst.
func (c *cordons) standBack(ctx context.Context, node string, n *notes) bool {
	if n.begun {
		return false
	}
	c.read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	since, waits := c.waiting[node]
	if !waits {
		since = now
	}
	if n.begun = n.stoodBack && !waits || !decision.StandsBack(node, c.fresh(now), since, now); n.begun {
		delete(c.waiting, node)
		return false
	}
	n.stoodBack, c.waiting[node] = true, since
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return true
}

// read reads the faults that are not evaluated, unless they were read a moment ago.
func (c *cordons) read(ctx context.Context) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	now := c.clock.Now()
	if now.Sub(c.readAt) < pendingReadInterval && !now.Before(c.readAt) {
		return
	}
	found := map[string]decision.Unmarked{}
	page, err := c.records.List(ctx, store.Query{Selector: PendingEvaluation(), Limit: maxPendingRead})
	for _, r := range page {
		if err == nil {
			found[r.ID] = decision.Unmarked{Node: r.Event.NodeName, Since: r.CreatedAt}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readAt, c.pendingEvaluation = c.clock.Now(), found
}

// fresh are nodes that are about to be marked. The caller holds the lock.
func (c *cordons) fresh(now time.Time) []string {
	nodes := append(decision.Fresh(c.pendingEvaluation, now), decision.Fresh(c.evaluated, now)...)
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// source enqueues the nodes that need not stand back any more, until ctx ends.
func (c *cordons) source(ctx context.Context, enqueue func(node string)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		}
		for waits := true; waits; {
			if !retry.Sleep(ctx, c.clock, pendingReadInterval) {
				return nil
			}
			c.read(ctx)
			var free []string
			free, waits = c.release()
			for _, node := range free {
				enqueue(node)
			}
		}
	}
}

// release returns the nodes that need not stand back any more, and whether others still do.
func (c *cordons) release() (free []string, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	fresh := c.fresh(now)
	for node, since := range c.waiting {
		if !decision.StandsBack(node, fresh, since, now) {
			free = append(free, node)
			delete(c.waiting, node)
		}
	}
	return free, len(c.waiting) > 0
}

// size is how many nodes stand back.
func (c *cordons) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}
