package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

const (
	// distance is what a round trip to the store takes.
	distance = 20 * time.Millisecond
	// noiseNode never stops reporting.
	noiseNode = "gpu-0"
	// cordonEvery is how often each of the other nodes fails, at most.
	cordonEvery = 10 * time.Second
	// noiseLease is how long the leader's lease lives, as the services have it.
	noiseLease = 15 * time.Second
)

// noisy measures how soon nodes are cordoned while another one reports as fast
// as no healthy one does and the store is far away; before that, without it.
func noisy(ctx context.Context, o Options) (rows []Row, err error) {
	n := &noise{stage: &stage{o: o, pen: newPen(), seen: newDiary()}, doors: map[string]protos.PlatformConnectorClient{}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: 1 + o.Sizes.NoiseNodes, Store: "postgresql", Root: o.Root, Bin: o.Bin, Progress: o.Progress,
		Distance: distance, Replicas: 2, Lease: noiseLease,
		Runs: func(room, _ string) bool { return room == fleet.Connector || room == "fault-quarantine" },
		Before: func(ctx context.Context, f *fleet.Fleet) error {
			n.fleet = f
			return n.look(ctx)
		},
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		stop() // who looks, before what is looked at
		err = errors.Join(err, f.Stop())
	}()
	if err := n.measure(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, f.Logs(noiseNode, 5))
	}
	return n.rows(), nil
}

// noise is what the steps find out.
type noise struct {
	*stage
	doors map[string]protos.PlatformConnectorClient

	quiet, loud []time.Duration

	acked, refused int
	// unstored and unjudged are the noisy node's events that wait for the store,
	// and for a verdict, when it falls silent.
	unstored, unjudged int
	// own is how long the noisy node waited for its own cordon, judged how long
	// after its last event all had their verdicts.
	own, judged time.Duration
}

func (n *noise) measure(ctx context.Context) (err error) {
	names := n.fleet.NodeNames()[1:]
	for _, name := range names {
		conn, err := report.Dial(n.fleet.Socket(name), "")
		if err != nil {
			return err
		}
		defer conn.Close()
		n.doors[name] = protos.NewPlatformConnectorClient(conn)
		if _, err := n.cordonOnce(ctx, name, time.Now()); err != nil { // the first request waits for the door
			return err
		}
	}
	length := n.o.Sizes.Noise
	n.o.say("%d nodes fail now and then for %s, %s away from the store", len(names), length/2, distance)
	if n.quiet, err = n.cordons(ctx, names, length/2); err != nil {
		return err
	}
	n.o.say("the same for %s beside a node that reports %d events a second", length, n.o.Sizes.NoiseRate)
	shouting, stop := context.WithCancel(ctx)
	defer stop()
	var shouted error
	var done sync.WaitGroup
	began := time.Now()
	done.Go(func() { shouted = n.shout(shouting) })
	n.loud, err = n.cordons(ctx, names, length)
	stop()
	done.Wait()
	if err = errors.Join(err, shouted); err != nil {
		return err
	}
	if err := n.settle(ctx, time.Now()); err != nil {
		return err
	}
	at, err := n.seen.await(ctx, n.o.Sizes.Limit, "cordoned "+noiseNode)
	n.own = at.Sub(began)
	return err
}

// cordons has nodes fail again and again, each at its moments of a period, and
// says how long each cordon took since that moment. A node that is late for its
// moment, since it was not released yet, fails as soon as it is.
func (n *noise) cordons(ctx context.Context, names []string, length time.Duration) ([]time.Duration, error) {
	period := min(cordonEvery, length/4)
	began := time.Now()
	var mu sync.Mutex
	var waits []time.Duration
	err := atOnce(len(names), len(names), func(i int) error {
		due := began.Add(period * time.Duration(i) / time.Duration(len(names)))
		for ; due.Sub(began) < length; due = due.Add(period) {
			if err := pause(ctx, time.Until(due)); err != nil {
				return err
			}
			wait, err := n.cordonOnce(ctx, names[i], due)
			if err != nil {
				return fmt.Errorf("%s: %w", names[i], err)
			}
			mu.Lock()
			waits = append(waits, wait)
			mu.Unlock()
		}
		return nil
	})
	return waits, err
}

// cordonOnce reports a fault of a node, waits for the cordon, reports the
// recovery and waits for the release. It says how long the cordon took since a
// moment.
func (n *noise) cordonOnce(ctx context.Context, node string, since time.Time) (time.Duration, error) {
	send := func(e *protos.HealthEvent) error {
		_, err := n.doors[node].HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}}, grpc.WaitForReady(true))
		return err
	}
	if err := send(n.pen.fault(node, 0, "95", protos.RecommendedAction_CONTACT_SUPPORT)); err != nil {
		return 0, err
	}
	at, err := n.seen.await(ctx, n.o.Sizes.Limit, "cordoned "+node)
	if err != nil {
		return 0, err
	}
	if err := send(n.pen.recovery(node, 0)); err != nil {
		return 0, err
	}
	_, err = n.seen.await(ctx, n.o.Sizes.Limit, "free "+node)
	return at.Sub(since), err
}

func (n *noise) rows() []Row {
	row := func(name string, q float64) Row {
		return Row{
			Figure: fmt.Sprintf("event published to node cordoned, %d nodes beside a noisy one, %s", n.o.Sizes.NoiseNodes, name),
			Ours:   seconds(quantile(n.loud, q)), Floor: seconds(quantile(n.quiet, q)), Target: Target{Within: 2},
			Note: fmt.Sprintf("%d times, store %s away, %d events/s for %s; floor: %d times without", len(n.loud), distance, n.o.Sizes.NoiseRate, n.o.Sizes.Noise, len(n.quiet)),
		}
	}
	return []Row{
		row("p50", 0.5), row("p99", 0.99),
		{
			Figure: "  the noisy node's first fatal fault to its cordon", Ours: seconds(n.own),
			Note: fmt.Sprintf("since its first event; the fault is event %d", firstFatal),
		},
		{
			Figure: "  the noisy node's events acknowledged", Ours: rate(n.acked, n.o.Sizes.Noise),
			Note: fmt.Sprintf("%d, all stored and judged; %d refused", n.acked, n.refused),
		},
		{
			Figure: "  its last event to the last verdict", Ours: seconds(n.judged),
			Note: fmt.Sprintf("when it fell silent %d were not stored and %d not judged", n.unstored, n.unjudged),
		},
	}
}
