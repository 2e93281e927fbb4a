package bench

import (
	"context"
	"fmt"
	"time"
)

// measure looks at the start, at changes, and at the monitor at rest.
func (r *objectsRun) measure(ctx context.Context, began time.Time, floor []time.Duration) ([]Row, error) {
	n := r.o.Sizes
	all := float64(objectPolicies / 2 * (n.ObjectNodes + n.ObjectPods))
	if err := r.evaluated(ctx, all); err != nil {
		return nil, err
	}
	sync := time.Since(began)
	what := fmt.Sprintf("%d nodes, %d pods, %d policies", n.ObjectNodes, n.ObjectPods, objectPolicies)
	rows := []Row{{Figure: "objects: start to all evaluated", Ours: seconds(sync), Note: what + ", the lease and the lists included"}}
	for _, step := range []func(context.Context) ([]Row, error){
		func(ctx context.Context) ([]Row, error) { return r.measurePass(ctx, all) },
		func(ctx context.Context) ([]Row, error) { return r.measureChanges(ctx, floor) },
		r.measureRest,
		func(context.Context) ([]Row, error) { return r.measureSize(what) },
	} {
		found, err := step(ctx)
		rows = append(rows, found...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// evaluated waits until that many predicates were evaluated in all.
func (r *objectsRun) evaluated(ctx context.Context, want float64) error {
	return until(ctx, r.o.Sizes.Limit, fmt.Sprintf("%.0f evaluations", want), func() (bool, error) {
		now, err := r.number(ctx, "k8s_object_monitor_evaluations_total ", false)
		return now >= want, err
	})
}

// measurePass times one look at everything, as each resync period has.
func (r *objectsRun) measurePass(ctx context.Context, all float64) ([]Row, error) {
	before, at := -1.0, 0.0
	// Between two passes the counter stands still.
	err := until(ctx, r.o.Sizes.Limit, "a calm", func() (_ bool, err error) {
		if err := pause(ctx, time.Second); err != nil {
			return false, err
		}
		before = at
		at, err = r.number(ctx, "k8s_object_monitor_evaluations_total ", false)
		return at == before, err
	})
	if err != nil {
		return nil, err
	}
	if err := r.evaluated(ctx, at+1); err != nil {
		return nil, err
	}
	began := time.Now()
	spent, err := cpu(r.pid)
	if err != nil {
		return nil, err
	}
	if err := r.evaluated(ctx, at+all); err != nil {
		return nil, err
	}
	took := time.Since(began)
	now, err := cpu(r.pid)
	return []Row{{
		Figure: "objects: evaluations per second", Ours: rate(int(all), took),
		Note: fmt.Sprintf("all %.0f of one resync in %s, %s of processor time", all, took.Round(time.Millisecond), (now - spent).Round(10*time.Millisecond)),
	}}, err
}

// measureChanges makes one fault and ends it, object after object.
func (r *objectsRun) measureChanges(ctx context.Context, floor []time.Duration) ([]Row, error) {
	var waits []time.Duration
	n := r.o.Sizes
	for i := range n.Changes {
		policy := i % objectPolicies
		kind, name, entity := "Node", fmt.Sprintf("node-%d", i%n.ObjectNodes), ""
		if policy%2 == 1 {
			kind, name, entity = "Pod", fmt.Sprintf("pod-%d", i%n.ObjectPods), "default/"
		}
		for _, healthy := range []bool{false, true} {
			value := fmt.Sprintf("Bench%d", policy)
			key := fmt.Sprintf("%v %s %s", healthy, value, entity+name)
			r.seen.forget(key)
			if healthy {
				value = ""
			}
			if err := setFault(ctx, r.client, kind, name, value); err != nil {
				return nil, err
			}
			changed := time.Now()
			told, err := r.seen.await(ctx, n.Limit, key)
			if err != nil {
				return nil, err
			}
			waits = append(waits, max(0, told.Sub(changed)))
		}
	}
	note := fmt.Sprintf("%d changes, one after the other; floor: seen by a watch + one object written", len(waits))
	var rows []Row
	for _, q := range []struct {
		name   string
		at     float64
		target Target
	}{{"p50", 0.5, Target{Within: 3}}, {"p99", 0.99, Target{Within: 8}}} {
		rows = append(rows, Row{
			Figure: "objects: change to event, " + q.name, Ours: seconds(quantile(waits, q.at)), Floor: seconds(quantile(floor, q.at)), Target: q.target, Note: note,
		})
	}
	return rows, nil
}

// measureRest counts the requests while nothing changes; all is evaluated again
// meanwhile.
func (r *objectsRun) measureRest(ctx context.Context) ([]Row, error) {
	schemas := []string{"bench-rest", "bench-watches", "bench-leases"}
	var counts [2][3]float64
	var used [2]time.Duration
	for when := range 2 {
		if err := pause(ctx, map[int]time.Duration{0: time.Second, 1: r.o.Sizes.Idle}[when]); err != nil {
			return nil, err
		}
		for i, s := range schemas {
			var err error
			if counts[when][i], err = r.number(ctx, `apiserver_flowcontrol_dispatched_requests_total{flow_schema="`+s+`"`, true); err != nil {
				return nil, err
			}
		}
		var err error
		if used[when], err = cpu(r.pid); err != nil {
			return nil, err
		}
	}
	if counts[0][0] == 0 {
		return nil, fmt.Errorf("the API server counted no request of the monitor's start")
	}
	each := func(i int) Quantity {
		return Quantity{(counts[1][i] - counts[0][i]) / r.o.Sizes.Idle.Minutes(), PerMinute, true}
	}
	return []Row{
		{
			Figure: "objects: API requests at rest, beyond watches and leases", Ours: each(0), Target: Target{Under: Quantity{1, PerMinute, true}},
			Note: fmt.Sprintf("over %s; counted by the API server; watches %s, leases %s", r.o.Sizes.Idle, each(1), each(2)),
		},
		{
			Figure: "objects: processor at rest", Ours: Quantity{1000 * (used[1] - used[0]).Seconds() / r.o.Sizes.Idle.Seconds(), Millicores, true},
			Note: fmt.Sprintf("with a look at everything each %s", objectResync),
		},
	}, nil
}

// measureSize is the monitor's memory now and at most.
func (r *objectsRun) measureSize(what string) ([]Row, error) {
	now, err := memory(r.pid, "VmRSS")
	if err != nil {
		return nil, err
	}
	own, err := memory(r.pid, "RssAnon")
	if err != nil {
		return nil, err
	}
	most, err := memory(r.pid, "VmHWM")
	return []Row{
		{Figure: "objects: memory of " + objectMonitor, Ours: bytesOf(now), Note: fmt.Sprintf("resident, %s; heap and stacks %.1f MB", what, float64(own)/1e6)},
		{Figure: "  at most", Ours: bytesOf(most), Note: "peak since the start"},
	}, err
}
