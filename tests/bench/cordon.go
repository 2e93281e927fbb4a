package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// cordonPace is how often a node fails, at most; the next one waits for the repair
	// object of the one before.
	cordonPace = 500 * time.Millisecond
	// objectAfter is how long after its cordon a node with nothing to drain may wait for
	// its maintenance object.
	objectAfter = 60 * time.Millisecond
)

// measureCordon reports a fault of node after node, each through its own connector. There
// is nothing to drain.
func (s *stage) measureCordon(ctx context.Context) (rows []Row, err error) {
	c, err := s.assemble(ctx, Cordon, s.cordon)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	journal, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	cordons, objects, err := s.failInTurn(ctx, c)
	if err != nil {
		return nil, err
	}
	used, err := journal.close(ctx)
	return append(s.cordonRows(cordons, objects), used.requestRows("fault", len(s.cordon))...), err
}

// failInTurn makes the nodes fail one after the other, and returns how long each waited for its
// cordon and for its maintenance object.
func (s *stage) failInTurn(ctx context.Context, c *crowd) (cordons, objects []time.Duration, err error) {
	pace := time.NewTicker(cordonPace)
	defer pace.Stop()
	for i, node := range c.nodes {
		if err := c.sendOne(ctx, i, s.pen.fault(node, 0, stormXID, stormAction)); err != nil {
			return nil, nil, err
		}
		accepted := time.Now()
		cordoned, err := s.diary.await(ctx, s.o.Sizes.Limit, "cordoned "+node)
		if err != nil {
			return nil, nil, err
		}
		made, err := s.diary.await(ctx, s.o.Sizes.Limit, "repair "+node)
		if err != nil {
			return nil, nil, err
		}
		cordons, objects = append(cordons, max(0, cordoned.Sub(accepted))), append(objects, max(0, made.Sub(accepted)))
		select {
		case <-pace.C:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return cordons, objects, nil
}

func (s *stage) cordonRows(cordons, objects []time.Duration) (rows []Row) {
	note := fmt.Sprintf("%d nodes, one after the other; floor: insert + notification + node patch", len(cordons))
	for _, q := range []struct {
		name   string
		at     float64
		within float64
	}{{"p50", 0.5, 2.5}, {"p90", 0.9, 4}, {"p99", 0.99, 8}} {
		rows = append(rows, Row{
			Figure: "event accepted to node cordoned, " + q.name, Measured: seconds(quantile(cordons, q.at)),
			Baseline: seconds(quantile(s.baselineCordon, q.at)), Target: Target{Within: q.within}, Note: note,
		})
	}
	middle := quantile(cordons, 0.5)
	return append(rows, Row{
		Figure: "event accepted to maintenance object, nothing to drain, p50", Measured: seconds(quantile(objects, 0.5)),
		Target: Target{Under: seconds(middle + objectAfter)},
		Note:   fmt.Sprintf("target: %s after the cordon", objectAfter), Remarks: "p90 " + seconds(quantile(objects, 0.9)).String(),
	})
}
