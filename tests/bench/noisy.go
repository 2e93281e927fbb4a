package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

const (
	// distance is what a round trip to the store takes.
	distance = 20 * time.Millisecond
	// noiseNode never stops reporting.
	noiseNode = nodePrefix + "0"
	// cordonEvery is how often each of the other nodes fails, at most.
	cordonEvery = 10 * time.Second
	// noiseLease is how long the leader's lease lives, as the services have it.
	noiseLease = 15 * time.Second
)

// noisy measures how soon nodes are cordoned while another one reports as fast
// as no healthy one does and the store is far away; before that, without it. It does so twice,
// and starts everything again each time: with no quota of nodes at the gateway, and with one
// that the noisy node reaches soon.
func noisy(ctx context.Context, o Options) (rows []Row, err error) {
	for _, q := range []noiseQuota{
		{name: "no quota", flags: []string{"--gateway-records-per-day-per-node", "0", "--gateway-bytes-per-day-per-node", "0"}},
		{
			name:    fmt.Sprintf("quota of %d records", o.Sizes.NoiseQuota),
			flags:   []string{"--gateway-records-per-day-per-node", strconv.Itoa(o.Sizes.NoiseQuota)},
			records: o.Sizes.NoiseQuota,
		},
	} {
		found, err := noisyWith(ctx, o, q)
		rows = append(rows, found...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", q.name, err)
		}
	}
	return rows, nil
}

// noiseQuota is what the gateway lets one node store in a day.
type noiseQuota struct {
	name    string
	flags   []string
	records int
}

func noisyWith(ctx context.Context, o Options, q noiseQuota) (rows []Row, err error) {
	n := &noise{stage: &stage{o: o, pen: newPen(), diary: newDiary()}, quota: q}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: 1 + o.Sizes.NoiseNodes, Store: "postgresql", Root: o.Root, Bin: o.Bin, Progress: o.Progress,
		Distance: distance, Replicas: 2, Lease: noiseLease,
		Runs: func(service, _ string) bool { return service == "fault-quarantine" },
		Before: func(ctx context.Context, f *fleet.Fleet) error {
			n.fleet = f
			return n.watch(ctx)
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
	if err := n.run(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, f.Logs("noisy", 5))
	}
	return n.rows(), nil
}

// noise is what the steps find out.
type noise struct {
	*stage
	quota noiseQuota
	gate  *fleet.Service
	// source is the noisy node's connector, others are those of the other nodes.
	source, others *crowd

	idleSpell, loud spell
	// acknowledged are the noisy node's events that were acknowledged, in their order; shouted
	// is for how long it reported.
	acknowledged []acknowledgedEvent
	refused      int
	shouted      time.Duration
	// failed is when the first fatal one of them was published, own how long after
	// that the node was cordoned.
	failed time.Time
	own    time.Duration
	// unstored and unevaluated are the noisy node's events that wait for the store,
	// and for a verdict, when it falls silent.
	unstored, unevaluated int
	// evaluatedAfter is how long after its last event all had their verdicts.
	evaluatedAfter time.Duration
	left           remains
}

// spell is what a time of failing nodes was like.
type spell struct {
	// waits are those for cordons.
	waits []time.Duration
	took  time.Duration
	used  usage
	// requests are those to the API server.
	requests counts
	load     string
}

// run starts gateway and connectors, the noisy node's in a process of its own, and
// measures.
func (n *noise) run(ctx context.Context) (err error) {
	names := n.fleet.NodeNames()
	var way []string
	if n.gate, way, err = n.gateway(ctx, "noisy", len(names), n.quota.flags...); err != nil {
		return err
	}
	if n.source, err = n.assemble(ctx, "noisy", names[:1], way...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.source.stop()) }()
	if n.others, err = n.assemble(ctx, "others", names[1:], way...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.others.stop()) }()
	return n.measure(ctx)
}

func (n *noise) measure(ctx context.Context) (err error) {
	for i := range n.others.nodes { // the first cordons find cold caches
		if _, err := n.cordonOnce(ctx, i, time.Now()); err != nil {
			return err
		}
	}
	length := n.o.Sizes.Noise
	n.o.log("%s: %d nodes fail now and then for %s, %s away from the store", n.quota.name, len(n.others.nodes), length/2, distance)
	if n.idleSpell, err = n.cordons(ctx, length/2); err != nil {
		return err
	}
	n.o.log("the same for %s beside a node that reports %d events a second", length, n.o.Sizes.NoiseRate)
	shouting, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	var done sync.WaitGroup
	done.Go(func() { failed = n.shout(shouting) })
	n.loud, err = n.cordons(ctx, length)
	stop()
	done.Wait()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if err := n.settle(ctx, time.Now()); err != nil {
		return err
	}
	at, err := n.diary.await(ctx, n.o.Sizes.Limit, "cordoned "+noiseNode)
	n.own = at.Sub(n.failed)
	return err
}

// cordons has the other nodes fail again and again, each at its moments of a period,
// and measures how long each cordon took since that moment. A node that is late for
// its moment, since it was not released yet, fails as soon as it is.
func (n *noise) cordons(ctx context.Context, length time.Duration) (s spell, err error) {
	period, count := min(cordonEvery, length/4), len(n.others.nodes)
	asked, err := n.readTraffic(ctx) // dear, and so outside what is measured
	if err != nil {
		return s, err
	}
	before, err := n.used()
	if err != nil {
		return s, err
	}
	began, first := time.Now(), load()
	var mu sync.Mutex
	err = atOnce(count, count, func(i int) error {
		due := began.Add(period * time.Duration(i) / time.Duration(count))
		for ; due.Sub(began) < length; due = due.Add(period) {
			if err := pause(ctx, time.Until(due)); err != nil {
				return err
			}
			wait, err := n.cordonOnce(ctx, i, due)
			if err != nil {
				return fmt.Errorf("%s: %w", n.others.nodes[i], err)
			}
			mu.Lock()
			s.waits = append(s.waits, wait)
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	after, err := n.used()
	if err != nil {
		return s, err
	}
	s.took, s.used, s.load = time.Since(began), after.since(before), first+" to "+load()
	answered, err := n.readTraffic(ctx)
	s.requests = answered.requests.since(asked.requests)
	return s, err
}

// cordonOnce reports a fault of a node, waits for the cordon, reports the
// recovery and waits for the release. It returns how long after since the cordon came.
func (n *noise) cordonOnce(ctx context.Context, i int, since time.Time) (time.Duration, error) {
	node := n.others.nodes[i]
	if err := n.others.sendOne(ctx, i, n.pen.fault(node, 0, "95", protos.RecommendedAction_CONTACT_SUPPORT)); err != nil {
		return 0, err
	}
	at, err := n.diary.await(ctx, n.o.Sizes.Limit, "cordoned "+node)
	if err != nil {
		return 0, err
	}
	if err := n.others.sendOne(ctx, i, n.pen.recovery(node, 0)); err != nil {
		return 0, err
	}
	_, err = n.diary.await(ctx, n.o.Sizes.Limit, "free "+node)
	return at.Sub(since), err
}
