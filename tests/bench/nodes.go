package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// fail stores a fault of each node at once, as their connectors would, and
// returns when it began.
func (s *stage) fail(ctx context.Context, nodes []string) (time.Time, error) {
	records := make([]record.Record, len(nodes))
	for i, node := range nodes {
		records[i] = stored(s.pen.fault(node, 0, "79", protos.RecommendedAction_RESTART_VM), s.nodes[node])
	}
	began := time.Now()
	_, err := s.fleet.Store.Append(ctx, records)
	return began, err
}

// measureRepair fails node after node and times the last step before a repair.
func (s *stage) measureRepair(ctx context.Context) ([]Row, error) {
	var waits []time.Duration
	for _, node := range s.repair {
		if _, err := s.fail(ctx, []string{node}); err != nil {
			return nil, err
		}
		gone, err := s.diary.await(ctx, s.o.Sizes.Limit, keys("gone", podsOn([]string{node}, repairPods))...)
		if err != nil {
			return nil, err
		}
		made, err := s.diary.await(ctx, s.o.Sizes.Limit, "repair "+node)
		if err != nil {
			return nil, err
		}
		waits = append(waits, max(0, made.Sub(gone)))
	}
	target := Target{Under: seconds(300 * time.Millisecond)}
	note := fmt.Sprintf("%d nodes; floor: durable update + creation", len(waits))
	return []Row{
		{Figure: "last pod gone to maintenance object, p50", Measured: seconds(quantile(waits, 0.5)), Baseline: seconds(quantile(s.baselineRepair, 0.5)), Target: target, Note: note},
		{Figure: "last pod gone to maintenance object, worst", Measured: seconds(quantile(waits, 1)), Baseline: seconds(quantile(s.baselineRepair, 1)), Target: target, Note: note},
	}, nil
}

// measureDrain fails the nodes that bear many pods.
func (s *stage) measureDrain(ctx context.Context) ([]Row, error) {
	pods := podsOn(s.drain, s.o.Sizes.PodsPerNode)
	began, err := s.fail(ctx, s.drain)
	if err != nil {
		return nil, err
	}
	last, err := s.diary.await(ctx, s.o.Sizes.Limit, keys("gone", pods)...)
	if err != nil {
		return nil, err
	}
	return []Row{{
		Figure: fmt.Sprintf("drain of %d pods on %d nodes", len(pods), len(s.drain)), Measured: seconds(last.Sub(began)), Baseline: seconds(s.baselineDrain),
		Target: Target{Within: 1.5}, Note: fmt.Sprintf("from the faults to the last pod gone; floor: evictions, %d at once", evictionsAtOnce),
	}}, nil
}
