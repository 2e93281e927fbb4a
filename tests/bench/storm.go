package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
)

const (
	// stormXID is the fault of figures whose nodes are to be repaired, stormAction what it
	// asks for.
	stormXID    = "79"
	stormAction = protos.RecommendedAction_RESTART_VM
	// burstTarget is a service's target in a storm, in bytes.
	burstTarget = 60e6
)

// hungry are the services whose memory a storm shows.
var hungry = []string{"fault-quarantine", "node-drainer", "fault-remediation"}

// measureStorm has many nodes fail at once, each of which reports through its own
// connector, which stores the fault and writes the Node's condition.
func (s *stage) measureStorm(ctx context.Context) (rows []Row, err error) {
	c, err := s.assemble(ctx, Storm, s.storm)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	journal, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	samples := map[string]func() (half, all int64){}
	for _, name := range hungry {
		samples[name] = watchMemory(s.fleet.Service(name))
	}
	began := time.Now()
	rows, err = s.burst(ctx, c, began)
	for _, name := range hungry {
		_, most := samples[name]()
		rows = append(rows, Row{
			Figure: "memory of " + name + " in the storm", Measured: bytesOf(most), Target: Target{Under: Quantity{burstTarget, Bytes, true}},
			Note: fmt.Sprintf("resident, at most, %d nodes", len(s.nodes)),
		})
	}
	used, failed := journal.close(ctx)
	if err = errors.Join(err, failed); err != nil {
		return rows, err
	}
	return append(rows, used.rows(len(s.storm))...), nil
}

// burst reports the faults and waits for all cordons, then for all maintenance objects.
func (s *stage) burst(ctx context.Context, c *crowd, began time.Time) ([]Row, error) {
	n := len(s.storm)
	err := c.send(ctx, func(node string) *protos.HealthEvent { return s.pen.fault(node, 0, stormXID, stormAction) })
	if err != nil {
		return nil, err
	}
	accepted := time.Since(began)
	cordoned, err := s.diary.await(ctx, s.o.Sizes.Limit, keys("cordoned", s.storm)...)
	if err != nil {
		return nil, err
	}
	rows := []Row{{
		Figure: fmt.Sprintf("%d nodes failing at once, all cordoned", n), Measured: seconds(cordoned.Sub(began)),
		Baseline: seconds(s.baselineStorm), Target: Target{Within: 2.5},
		Note:    fmt.Sprintf("floor: %d patches in flight at once", n),
		Remarks: fmt.Sprintf("half after %s, all accepted after %s", s.half("cordoned", began), seconds(accepted)),
	}}
	made, err := s.diary.await(ctx, s.o.Sizes.Limit, keys("repair", s.storm)...)
	if err != nil {
		return rows, err
	}
	shown, err := s.diary.await(ctx, s.o.Sizes.Limit, keys("shown", s.storm)...)
	return append(rows, Row{
		Figure: fmt.Sprintf("%d nodes failing at once, all maintenance objects", n), Measured: seconds(made.Sub(began)),
		Baseline: seconds(s.baselineStorm), Target: Target{Within: 6}, Note: "floor: the same patches", Remarks: fmt.Sprintf("half after %s", s.half("repair", began)),
	}, Row{
		Figure: "  all conditions", Measured: seconds(shown.Sub(began)), Baseline: seconds(s.baselineStorm),
		Remarks: fmt.Sprintf("half after %s", s.half("shown", began)),
	}), err
}

// half is when half of the storm's nodes had something.
func (s *stage) half(fact string, began time.Time) Quantity {
	var waits []time.Duration
	for _, at := range s.diary.when(keys(fact, s.storm)...) {
		waits = append(waits, at.Sub(began))
	}
	return seconds(quantile(waits, 0.5))
}
