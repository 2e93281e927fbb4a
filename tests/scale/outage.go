package scale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// pulseEvery is how often the gateways' counters are read.
	pulseEvery = 200 * time.Millisecond
	// longestBackoff is how long a connector waits at most between two tries to
	// connect (platform-connectors/internal/upstream): so long all nodes have to come
	// back evenly.
	longestBackoff = 10 * time.Second
	// longestPause is the same of a connector whose gateway has no store
	// (platform-connectors/internal/forwarder).
	longestPause = 15 * time.Second
	// stampede is how much more than evenly they may come in a second.
	stampede = 4
)

// pulse is the sum of the metrics of all gateways at a moment.
type pulse struct {
	at                 time.Time
	connections, calls float64
}

// gatewayOutage takes every gateway away, has each node report, and brings the gateways
// back at the same moment.
func (c *crossing) gatewayOutage(ctx context.Context) ([]figure, error) {
	for _, p := range c.gates.running {
		p.kill()
	}
	pulses, took, err := c.returning(ctx, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, p := range c.gates.running {
			group.Go(func() error { return c.again(ctx, p) })
		}
		return group.Wait()
	})
	if err != nil {
		return nil, err
	}
	even := perSecond(float64(c.nodes) / longestBackoff.Seconds())
	return []figure{
		{
			nodes: c.nodes, name: "gateways back: connections in the busiest second", value: perSecond(busiest(pulses, func(p pulse) float64 { return p.connections })), baseline: even, target: within(stampede),
			note: fmt.Sprintf("each node has an event that waits; floor: all nodes evenly over %s, their longest backoff", longestBackoff),
		},
		{
			nodes: c.nodes, name: "gateways back: all nodes' events stored after", value: seconds(took),
			note: fmt.Sprintf("all %d gateways were away for %s; a token of each node is reviewed, one after the other since all have one address here", len(c.gates.running), c.o.Sizes.Outage),
		},
	}, nil
}

// storeOutage takes the store away, has each node report, and brings it back.
func (c *crossing) storeOutage(ctx context.Context) ([]figure, error) {
	if err := c.database.Kill(); err != nil {
		return nil, err
	}
	pulses, took, err := c.returning(ctx, func(ctx context.Context) (err error) {
		if err := c.database.Restart(ctx); err != nil {
			return err
		}
		c.storeConn, err = c.database.Connect(ctx, "postgres")
		return err
	})
	if err != nil {
		return nil, err
	}
	return []figure{
		{
			nodes: c.nodes, name: "store back: calls of connectors in the busiest second", value: perSecond(busiest(pulses, func(p pulse) float64 { return p.calls })),
			baseline: perSecond(float64(c.nodes) / longestPause.Seconds()), target: within(stampede),
			note: fmt.Sprintf("each node has an event that waits; floor: all nodes evenly over %s, the longest pause between two tries", longestPause),
		},
		{
			nodes: c.nodes, name: "store back: all nodes' events stored after", value: seconds(took), note: fmt.Sprintf("it was away for %s; the connections to the gateways stay", c.o.Sizes.Outage),
		},
	}, nil
}

// returning has each node report, brings back what is away when the outage has lasted
// long enough, and takes the gateways' pulses until every event is stored.
func (c *crossing) returning(ctx context.Context, back func(context.Context) error) ([]pulse, time.Duration, error) {
	began := time.Now()
	if err := c.sendAll(ctx); err != nil {
		return nil, 0, err
	}
	c.o.log("all nodes have reported after %s", time.Since(began).Round(time.Second))
	if err := c.pause(ctx, c.o.Sizes.Outage-time.Since(began)); err != nil {
		return nil, 0, err
	}
	stop := c.watch(ctx)
	defer stop()
	began = time.Now()
	if err := back(ctx); err != nil {
		return nil, 0, err
	}
	err := c.allStored(ctx)
	took := time.Since(began)
	// However soon that was, the pulses cover a whole second.
	err = errors.Join(err, c.pause(ctx, time.Second+pulseEvery))
	return stop(), took, err
}

// again starts a gateway that was killed, and waits until it is ready.
func (c *crossing) again(ctx context.Context, p *process) error {
	if err := p.start(); err != nil {
		return err
	}
	return c.until(ctx, p.name+" to be ready again", p.ready)
}

// watch takes pulses until stop is called, which returns them.
func (c *crossing) watch(ctx context.Context) (stop func() []pulse) {
	ctx, cancel := context.WithCancel(ctx)
	var pulses []pulse
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(pulseEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := pulse{at: time.Now()}
			for _, p := range c.gates.running {
				// One that is away has no connections and was not called.
				connections, _ := p.metric(ctx, "nvsentinel_gateway_connections")
				calls, _ := p.metric(ctx, "nvsentinel_gateway_requests_total")
				now.connections, now.calls = now.connections+connections, now.calls+calls
			}
			if ctx.Err() == nil {
				pulses = append(pulses, now)
			}
		}
	})
	return func() []pulse {
		cancel()
		watching.Wait()
		return pulses
	}
}

// busiest is the largest growth of a count within a second, per second.
func busiest(pulses []pulse, count func(pulse) float64) float64 {
	most := 0.0
	for i, first := range pulses {
		for _, later := range pulses[i+1:] {
			if over := later.at.Sub(first.at); over >= time.Second {
				most = max(most, (count(later)-count(first))/over.Seconds())
				break
			}
		}
	}
	return most
}
