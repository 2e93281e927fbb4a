package scale

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/report"
)

// tally counts what loud nodes reported.
type tally struct{ acknowledged, refused, kills atomic.Int64 }

// flow has some nodes report without a pause while one gateway after the other is
// killed and started again, and counts what of it is in the store.
func (c *crossing) flow(ctx context.Context) ([]figure, error) {
	c.pen = newPen()
	var t tally
	began := time.Now()
	if err := c.shoutAndKill(ctx, &t); err != nil {
		return nil, err
	}
	took := time.Since(began)
	silent := time.Now()
	acknowledged := int(t.acknowledged.Load())
	err := c.until(ctx, fmt.Sprintf("%d acknowledged events in the store", acknowledged), func(ctx context.Context) (bool, error) {
		n, err := c.stored(ctx)
		return n >= acknowledged, err
	})
	behind := time.Since(silent)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	figures, counted := c.flowFigures(ctx, &t, took, behind)
	each, asked := c.connections(ctx)
	if err = errors.Join(err, counted, asked); err != nil {
		return figures, err
	}
	return append(figures, c.share("flow: connections of the gateway with the most, at the end", each)), nil
}

// shoutAndKill returns when the loud nodes have fallen silent and every gateway runs.
func (c *crossing) shoutAndKill(ctx context.Context, t *tally) error {
	shouting, stop := context.WithTimeout(ctx, c.o.Sizes.Duration)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for i := range min(c.o.Sizes.Loud, c.nodes) {
		group.Go(func() error { return c.shout(ctx, shouting.Done(), nodeName(i), t) })
	}
	group.Go(func() error {
		every := time.NewTicker(c.o.Sizes.KillEvery)
		defer every.Stop()
		for kill := 0; ; kill++ {
			select {
			case <-shouting.Done():
				return ctx.Err()
			case <-every.C:
			}
			p := c.gates.running[kill%len(c.gates.running)]
			p.kill()
			t.kills.Add(1)
			if err := c.again(ctx, p); err != nil {
				return err
			}
		}
	})
	return group.Wait()
}

// shout has a node report at a fixed rate until silence. What was sent is answered, so
// that it can be counted; what is refused is not sent again.
func (c *crossing) shout(ctx context.Context, silence <-chan struct{}, node string, t *tally) error {
	conn, err := report.Dial(c.socket(node), "")
	if err != nil {
		return err
	}
	defer conn.Close()
	client := protos.NewPlatformConnectorClient(conn)
	every := time.NewTicker(time.Second / time.Duration(c.o.Sizes.Rate))
	defer every.Stop()
	for i := 0; ; i++ {
		select {
		case <-silence:
			return ctx.Err()
		case <-every.C:
		}
		_, err := client.HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{c.pen.murmur(node, i)}}, grpc.WaitForReady(true))
		switch {
		case err == nil:
			t.acknowledged.Add(1)
		case status.Code(err) == codes.ResourceExhausted:
			t.refused.Add(1)
		default:
			return fmt.Errorf("reporting an event of %s: %w", node, err)
		}
	}
}

// flowFigures counts what is stored, and how long it took.
func (c *crossing) flowFigures(ctx context.Context, t *tally, took, behind time.Duration) ([]figure, error) {
	var stored, different int
	var median, slow, slowest float64
	err := c.storeConn.QueryRow(ctx, `SELECT count(*), count(DISTINCT seq), coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY lag), 0),
		coalesce(percentile_disc(0.99) WITHIN GROUP (ORDER BY lag), 0), coalesce(max(lag), 0)
		FROM (SELECT seq, extract(epoch FROM stored_at - created_at)::float8 AS lag FROM health_events WHERE seq_epoch = $1) AS events`,
		c.pen.epoch).Scan(&stored, &different, &median, &slow, &slowest)
	if err != nil {
		return nil, err
	}
	n, acknowledged := c.nodes, int(t.acknowledged.Load())
	note := fmt.Sprintf("%d nodes, %d events a second each, for %s; %d gateways killed; %d refused", min(c.o.Sizes.Loud, n), c.o.Sizes.Rate, c.o.Sizes.Duration, t.kills.Load(), t.refused.Load())
	lag := func(name string, s float64) figure {
		return figure{nodes: n, name: "flow: accepted to stored, " + name, value: seconds(time.Duration(s * float64(time.Second))), note: "of all events"}
	}
	return []figure{
		{nodes: n, name: "flow: events acknowledged", value: perSecond(float64(acknowledged) / took.Seconds()), note: fmt.Sprintf("%d; %s", acknowledged, note)},
		{nodes: n, name: "flow: acknowledged events that are lost", value: number(float64(acknowledged - different)), target: none(), note: fmt.Sprintf("%d different ones are stored", different)},
		{nodes: n, name: "flow: events that are stored twice", value: number(float64(stored - different)), target: none(), note: fmt.Sprintf("%d records", stored)},
		lag("p50", median), lag("p99", slow), lag("the slowest", slowest),
		{nodes: n, name: "flow: the last event to all stored", value: seconds(behind), note: "when the nodes have fallen silent"},
	}, nil
}
