package scale

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/report"
)

const (
	// connectorsEach is how many connectors one process has: each opens some four
	// files, of which a process has 20,000 here.
	connectorsEach = 3400
	// reportersAtOnce is how many nodes report at the same time, when all do.
	reportersAtOnce = 64
	// evenly is how many times an even share of the connections a gateway may have.
	evenly = 1.25
	// asGateway distinguishes the gateways' sessions from others at the store.
	asGateway = "scale-gateway"
)

// crossing is the way of the events of all nodes through the gateways into the store.
type crossing struct {
	*suite
	pen       *pen
	gates     *service
	crowd     []*process
	storeConn *pgx.Conn // at the store, our own
}

// gateways measures the way between the connectors of a number of nodes and the store.
func gateways(ctx context.Context, o Options, nodes int) (figures []figure, err error) {
	s, err := newSite(ctx, o, nodes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.furnish(ctx, 0); err != nil {
		return nil, err
	}
	u, err := newSuite(ctx, s)
	if err != nil {
		return nil, err
	}
	c := &crossing{suite: u, pen: newPen()}
	figures, err = c.measure(ctx)
	if err != nil && ctx.Err() == nil {
		s.logs(o.Progress, 5)
	}
	return figures, err
}

func (c *crossing) measure(ctx context.Context) (figures []figure, err error) {
	if c.storeConn, err = c.database.Connect(ctx, "postgres"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.storeConn.Close(context.WithoutCancel(ctx))) }()
	c.gates = c.gateways()
	c.gates.args = append(c.gates.args, "--store="+c.dsn()+"&application_name="+url.QueryEscape(asGateway))
	c.services = []*service{c.gates}
	if err := c.raise(ctx, c.gates); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name    string
		measure func(context.Context) ([]figure, error)
	}{
		{"starting all connectors", c.start}, {"looking at the gateways at rest", c.measureIdle}, {"an outage of the gateways", c.gatewayOutage},
		{"an outage of the store", c.storeOutage}, {"events while gateways are killed", c.flow},
	} {
		c.o.log("%s", step.name)
		found, err := step.measure(ctx)
		figures = append(figures, found...)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	peaks, err := c.peaks()
	return append(figures, peaks...), errors.Join(err, c.profile(ctx, "gateways"))
}

// start starts the connectors of all nodes and waits until each has its connection.
func (c *crossing) start(ctx context.Context) ([]figure, error) {
	began := time.Now()
	for first := 0; first < c.nodes; first += connectorsEach {
		p, err := c.connectors(ctx, first, min(connectorsEach, c.nodes-first), "--dedup-window=0s")
		if err != nil {
			return nil, err
		}
		c.crowd = append(c.crowd, p)
		c.o.log("connectors of %d nodes after %s", min(first+connectorsEach, c.nodes), time.Since(began).Round(time.Second))
	}
	if err := c.sendAll(ctx); err != nil { // a connector with nothing to send has no connection
		return nil, err
	}
	if err := c.allStored(ctx); err != nil {
		return nil, err
	}
	each, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{c.share("gateways: connections of the one with the most", each)}, nil
}

// connected waits until every connector has its connection, and returns how many each gateway
// has.
func (c *crossing) connected(ctx context.Context) (each []float64, err error) {
	err = c.until(ctx, fmt.Sprintf("%d connections at the gateways", c.nodes), func(ctx context.Context) (bool, error) {
		each, err = c.connections(ctx)
		return int(sum(each)) >= c.nodes, err
	})
	return each, err
}

// connections are those of each gateway.
func (c *crossing) connections(ctx context.Context) ([]float64, error) {
	each := make([]float64, len(c.gates.running))
	for i, p := range c.gates.running {
		n, err := p.metric(ctx, "nvsentinel_gateway_connections")
		if err != nil {
			return nil, err
		}
		each[i] = n
	}
	return each, nil
}

func sum(values []float64) (out float64) {
	for _, v := range values {
		out += v
	}
	return out
}

// share is how evenly connections are spread over the gateways.
func (c *crossing) share(name string, each []float64) figure {
	return figure{
		nodes: c.nodes, name: name, value: number(slices.Max(each)), baseline: number(sum(each) / float64(len(each))), target: within(evenly),
		note: fmt.Sprintf("connections of each: %.0f; floor: an even share", each),
	}
}

// measureIdle measures gateways, store and connectors while nobody reports. Because each node
// has reported shortly before, its connector asks now and then whether the store is the same.
func (c *crossing) measureIdle(ctx context.Context) ([]figure, error) {
	before, err := c.used()
	if err != nil {
		return nil, err
	}
	if err := c.pause(ctx, c.o.Sizes.Idle); err != nil {
		return nil, err
	}
	after, err := c.used()
	if err != nil {
		return nil, err
	}
	out := c.ofService(c.gates, before, after)
	var sessions int
	if err := c.storeConn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", asGateway).Scan(&sessions); err != nil {
		return out, err
	}
	database, err := c.ofDatabase()
	if err != nil {
		return out, err
	}
	each, err := c.perConnector()
	if err != nil {
		return out, err
	}
	return append(out,
		figure{nodes: c.nodes, name: "gateways: connections to the store", value: number(float64(sessions)), growth: 1, level: true, note: fmt.Sprintf("of %d gateways", len(c.gates.running))},
		figure{
			nodes: c.nodes, name: "gateways: memory of PostgreSQL", value: bytesOf(database.bytes), growth: bendAllowed,
			note: fmt.Sprintf("the server and its %d backends and helpers, shared pages once", database.processes-1),
		},
		figure{nodes: c.nodes, name: "beside: one simulated connector, memory", value: bytesOf(each), note: "heap and stacks, of many in one process: a real one is a process of its own"},
	), nil
}

// perConnector is the heap and stacks of one connector, in bytes, on average.
func (c *crossing) perConnector() (int64, error) {
	all := int64(0)
	for _, p := range c.crowd {
		now, err := usageOf(p.pid())
		if err != nil {
			return 0, err
		}
		all += now.own
	}
	return all / int64(c.nodes), nil
}

// send reports an event of a node through its ingest endpoint and returns when it is
// acknowledged.
func (c *crossing) send(ctx context.Context, node string, e *protos.HealthEvent) error {
	conn, err := report.Dial(c.socket(node), "")
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("reporting an event of %s: %w", node, err)
	}
	return nil
}

// sendAll has every node report one event, as a pen of this round writes it.
func (c *crossing) sendAll(ctx context.Context) error {
	c.pen = newPen()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reportersAtOnce)
	for i := range c.nodes {
		group.Go(func() error { return c.send(ctx, nodeName(i), c.pen.murmur(nodeName(i), i)) })
	}
	return group.Wait()
}

// allStored waits until every event of the round is in the store.
func (c *crossing) allStored(ctx context.Context) error {
	return c.until(ctx, fmt.Sprintf("an event of each of %d nodes in the store", c.nodes), func(ctx context.Context) (bool, error) {
		n, err := c.stored(ctx)
		return n >= c.nodes, err
	})
}

// stored is how many events of the round are in the store.
func (c *crossing) stored(ctx context.Context) (n int, err error) {
	err = c.storeConn.QueryRow(ctx, "SELECT count(*) FROM health_events WHERE seq_epoch = $1", c.pen.epoch).Scan(&n)
	return n, err
}
