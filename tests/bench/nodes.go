package bench

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report"
)

// measureCordon reports fault after fault through the connectors of a few
// nodes; each node is released by a recovery before its next fault.
func (s *stage) measureCordon(ctx context.Context) ([]Row, error) {
	doors := make([]protos.PlatformConnectorClient, len(s.cordon))
	for i, node := range s.cordon {
		conn, err := report.Dial(s.fleet.Socket(node), "")
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		doors[i] = protos.NewPlatformConnectorClient(conn)
	}
	send := func(door int, e *protos.HealthEvent) error {
		_, err := doors[door].HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}}, grpc.WaitForReady(true))
		return err
	}
	var waits []time.Duration
	for i := range s.o.Sizes.Cordons {
		door := i % len(doors)
		node := s.cordon[door]
		if err := send(door, s.pen.fault(node, 0, "95", protos.RecommendedAction_CONTACT_SUPPORT)); err != nil {
			return nil, fmt.Errorf("reporting a fault of %s: %w", node, err)
		}
		accepted := time.Now()
		cordoned, err := s.seen.await(ctx, s.o.Sizes.Limit, "cordoned "+node)
		if err != nil {
			return nil, err
		}
		waits = append(waits, max(0, cordoned.Sub(accepted)))
		if err := send(door, s.pen.recovery(node, 0)); err != nil {
			return nil, fmt.Errorf("reporting the recovery of %s: %w", node, err)
		}
		if _, err := s.seen.await(ctx, s.o.Sizes.Limit, "free "+node); err != nil {
			return nil, err
		}
	}
	note := fmt.Sprintf("%d times; floor: insert + notification + node patch", len(waits))
	return []Row{
		{
			Figure: "event accepted to node cordoned, p50", Ours: seconds(quantile(waits, 0.5)),
			Floor: seconds(quantile(s.floorCordon, 0.5)), Target: Target{Within: 2.5}, Note: note,
		},
		{
			Figure: "event accepted to node cordoned, p99", Ours: seconds(quantile(waits, 0.99)),
			Floor: seconds(quantile(s.floorCordon, 0.99)), Target: Target{Within: 8}, Note: note,
		},
	}, nil
}

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
		gone, err := s.seen.await(ctx, s.o.Sizes.Limit, keys("gone", podsOn([]string{node}, repairPods))...)
		if err != nil {
			return nil, err
		}
		made, err := s.seen.await(ctx, s.o.Sizes.Limit, "repair "+node)
		if err != nil {
			return nil, err
		}
		waits = append(waits, max(0, made.Sub(gone)))
	}
	target := Target{Under: seconds(300 * time.Millisecond)}
	note := fmt.Sprintf("%d nodes; floor: durable update + creation", len(waits))
	return []Row{
		{Figure: "last pod gone to repair object, p50", Ours: seconds(quantile(waits, 0.5)), Floor: seconds(quantile(s.floorRepair, 0.5)), Target: target, Note: note},
		{Figure: "last pod gone to repair object, worst", Ours: seconds(quantile(waits, 1)), Floor: seconds(quantile(s.floorRepair, 1)), Target: target, Note: note},
	}, nil
}

// measureDrain fails the nodes that bear many pods.
func (s *stage) measureDrain(ctx context.Context) ([]Row, error) {
	pods := podsOn(s.drain, s.o.Sizes.PodsPerNode)
	began, err := s.fail(ctx, s.drain)
	if err != nil {
		return nil, err
	}
	last, err := s.seen.await(ctx, s.o.Sizes.Limit, keys("gone", pods)...)
	if err != nil {
		return nil, err
	}
	return []Row{{
		Figure: fmt.Sprintf("drain of %d pods on %d nodes", len(pods), len(s.drain)), Ours: seconds(last.Sub(began)), Floor: seconds(s.floorDrain),
		Target: Target{Within: 1.5}, Note: fmt.Sprintf("from the faults to the last pod gone; floor: evictions, %d at once", evictionsAtOnce),
	}}, nil
}

// measureStorm fails many nodes at once.
func (s *stage) measureStorm(ctx context.Context) ([]Row, error) {
	n := len(s.storm)
	began, err := s.fail(ctx, s.storm)
	if err != nil {
		return nil, err
	}
	cordoned, err := s.seen.await(ctx, s.o.Sizes.Limit, keys("cordoned", s.storm)...)
	if err != nil {
		return nil, err
	}
	rows := []Row{{
		Figure: fmt.Sprintf("%d nodes failing at once, all cordoned", n), Ours: seconds(cordoned.Sub(began)),
		Floor: seconds(s.floorStorm), Target: Target{Within: 2}, Note: fmt.Sprintf("floor: %d patches in flight at once", n),
	}}
	made, err := s.seen.await(ctx, s.o.Sizes.Limit, keys("repair", s.storm)...)
	if err != nil {
		return rows, err
	}
	return append(rows, Row{
		Figure: fmt.Sprintf("%d nodes failing at once, all repair objects", n), Ours: seconds(made.Sub(began)),
		Floor: seconds(s.floorStorm), Target: Target{Within: 4}, Note: "floor: the same patches",
	}), nil
}
