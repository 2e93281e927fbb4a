package matching

import (
	"context"
	"fmt"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// handleCluster evaluates, with the events of all nodes, what one of them has brought. The first
// call evaluates the news of all; a node's deliveries are settled when that went well.
func (m *Matcher) handleCluster(ctx context.Context, name string) error {
	shared, owed := m.nodes.owed(name)
	if !owed {
		return nil
	}
	n := m.nodes.enterCluster()
	if err := m.work(ctx, n, func(set *ruleSet) (*decision.Window, error) { return m.readCluster(ctx, set) }); err != nil {
		return err
	}
	m.nodes.settle(name, shared)
	return nil
}

// leastForCluster is what the cluster's window may hold at least.
const leastForCluster = 1024

// forCluster is how many events the cluster's window may hold.
func (m *Matcher) forCluster() int { return max(leastForCluster, m.CachedEvents/2) }

// clusterPage is how many records are read at once for the cluster's window.
const clusterPage = 1000

// readCluster fills the cluster's window from the store: what its rules have
// derived, and page by page the newest records of all nodes, of which it keeps
// what concerns it. It ends with a page that holds nothing of the window: single
// events that were accepted long before they were stored end nothing.
func (m *Matcher) readCluster(ctx context.Context, set *ruleSet) (*decision.Window, error) {
	w := decision.NewClusterWindow(set.ofCluster)
	derived, err := m.list(ctx, store.Query{
		Selector: record.Selector{Name: "Derived of the cluster", SeqEpoch: decision.ClusterEpoch}, Order: store.BySeqDescending, Limit: lastPage,
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(derived)
	for _, r := range derived {
		w.Add(factOf(r))
	}
	known, err := m.clusterHistory(ctx, w, set)
	if err != nil {
		return nil, err
	}
	for _, f := range slices.Backward(known) {
		w.Add(f)
	}
	return w, nil
}

// clusterHistory is what concerns the window of the newest records, newest first.
func (m *Matcher) clusterHistory(ctx context.Context, w *decision.Window, set *ruleSet) (known []*decision.Fact, err error) {
	if len(set.ofCluster) == 0 {
		return nil, nil // only faults of rules that are gone have to end
	}
	begin := m.begin(set.ofCluster)
	q := store.Query{Selector: record.Selector{Name: "Window of the cluster"}, Order: store.ByAppendDescending, Limit: clusterPage}
	err = store.Pages(ctx, m.Records, q, func(page []record.Record) error {
		past := true
		for _, r := range page {
			past = past && r.CreatedAt.Before(begin)
			if f := factOf(r); !f.At.Before(begin) && w.Concerns(f) {
				known = append(known, f)
			}
		}
		if past || len(known) > m.forCluster() {
			return store.Enough
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading records (%s): %w", q.Selector.Name, err)
	}
	return known, nil
}

// trim keeps the cluster's window within its bound.
func (m *Matcher) trim(w *decision.Window) {
	if w.Trim(m.forCluster()) {
		m.Metrics.Truncated.Inc()
		m.Log.Warn("cluster window exceeded, oldest events left out", "events", m.forCluster())
	}
}

// recoveries adds what may have ended a source that the window did not hold: it
// can be older than all that was read.
func (m *Matcher) recoveries(ctx context.Context, w *decision.Window, source record.Record) error {
	err := store.Pages(ctx, m.Records, store.Query{
		Selector: record.Selector{Name: "Recoveries", Node: source.Event.NodeName, Agent: source.Event.Agent, Healthy: record.Yes()},
		After:    source.Append, Limit: largestPage,
	}, func(page []record.Record) error {
		for _, r := range page {
			if f := factOf(r); w.Concerns(f) {
				w.Add(f)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the recoveries of node %s: %w", source.Event.NodeName, err)
	}
	return nil
}
