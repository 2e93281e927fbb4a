package bench

import (
	"context"
	"fmt"
	"time"
)

// measure looks at the start, at changes, and at the monitor at rest.
func (r *objectsRun) measure(ctx context.Context, began time.Time, baseline []time.Duration) ([]Row, error) {
	n := r.o.Sizes
	all := float64(objectPolicies / 2 * (n.ObjectNodes + n.ObjectPods))
	if err := r.evaluated(ctx, all); err != nil {
		return nil, err
	}
	sync := time.Since(began)
	what := fmt.Sprintf("%d nodes, %d pods, %d policies", n.ObjectNodes, n.ObjectPods, objectPolicies)
	rows := []Row{{Figure: "objects: start to all evaluated", Measured: seconds(sync), Note: what + ", the lease and the lists included"}}
	for _, step := range []func(context.Context) ([]Row, error){
		func(ctx context.Context) ([]Row, error) { return r.measureChanges(ctx, baseline) },
		r.measureIdle,
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

// evaluated waits until the caches are filled and that many predicates were
// evaluated in all.
func (r *objectsRun) evaluated(ctx context.Context, want float64) error {
	return until(ctx, r.o.Sizes.Limit, fmt.Sprintf("%.0f evaluations", want), func() (bool, error) {
		ready, err := r.ready(ctx)
		if err != nil || !ready {
			return false, err
		}
		now, err := r.number(ctx, "nvsentinel_object_monitor_policy_evaluations_total ", false)
		return now >= want, err
	})
}

func (r *objectsRun) ready(ctx context.Context) (bool, error) {
	return answersReady(ctx, r.address())
}

// measureChanges makes one fault and ends it, object after object.
func (r *objectsRun) measureChanges(ctx context.Context, baseline []time.Duration) ([]Row, error) {
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
			r.diary.forget(key)
			if healthy {
				value = ""
			}
			if err := setFault(ctx, r.client, kind, name, value); err != nil {
				return nil, err
			}
			changed := time.Now()
			reported, err := r.diary.await(ctx, n.Limit, key)
			if err != nil {
				return nil, err
			}
			waits = append(waits, max(0, reported.Sub(changed)))
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
			Figure: "objects: change to event, " + q.name, Measured: seconds(quantile(waits, q.at)), Baseline: seconds(quantile(baseline, q.at)), Target: q.target, Note: note,
		})
	}
	return rows, nil
}

// idleUsage is what the monitor has asked and used since its start.
type idleUsage struct {
	requests, watches, leases float64 // requests
	evaluations               float64
	used                      time.Duration // of a processor
}

func (r *objectsRun) idleUsage(ctx context.Context) (s idleUsage, err error) {
	for schema, count := range map[string]*float64{"bench-rest": &s.requests, "bench-watches": &s.watches, "bench-leases": &s.leases} {
		if *count, err = r.number(ctx, `apiserver_flowcontrol_dispatched_requests_total{flow_schema="`+schema+`"`, true); err != nil {
			return s, err
		}
	}
	if s.evaluations, err = r.number(ctx, "nvsentinel_object_monitor_policy_evaluations_total ", false); err != nil {
		return s, err
	}
	s.used, err = cpu(r.pid)
	return s, err
}

// measureIdle looks at the monitor while nothing changes; all is evaluated again
// meanwhile.
func (r *objectsRun) measureIdle(ctx context.Context) ([]Row, error) {
	var at [2]idleUsage
	for when, wait := range []time.Duration{time.Second, r.o.Sizes.Idle} {
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		var err error
		if at[when], err = r.idleUsage(ctx); err != nil {
			return nil, err
		}
	}
	if at[0].requests == 0 {
		return nil, fmt.Errorf("the API server counted no request of the monitor's start")
	}
	each := func(count func(idleUsage) float64) Quantity {
		return Quantity{(count(at[1]) - count(at[0])) / r.o.Sizes.Idle.Minutes(), PerMinute, true}
	}
	watches, leases := each(func(s idleUsage) float64 { return s.watches }), each(func(s idleUsage) float64 { return s.leases })
	evaluations, used := at[1].evaluations-at[0].evaluations, at[1].used-at[0].used
	return []Row{
		{
			Figure: "objects: evaluations per second of a processor", Measured: rate(int(evaluations), max(used, 10*time.Millisecond)),
			Note: fmt.Sprintf("%.0f evaluations in %s, %s of processor time, all that the monitor does at rest included", evaluations, r.o.Sizes.Idle, used.Round(10*time.Millisecond)),
		},
		{
			Figure: "objects: API requests at rest, beyond watches and leases", Measured: each(func(s idleUsage) float64 { return s.requests }), Target: Target{Under: Quantity{1, PerMinute, true}},
			Note: fmt.Sprintf("over %s; counted by the API server; watches %s, leases %s", r.o.Sizes.Idle, watches, leases),
		},
		{
			Figure: "objects: processor at rest", Measured: Quantity{1000 * used.Seconds() / r.o.Sizes.Idle.Seconds(), Millicores, true},
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
		{Figure: "objects: memory of " + objectMonitor, Measured: bytesOf(now), Note: fmt.Sprintf("resident, %s; heap and stacks %.1f MB", what, float64(own)/1e6)},
		{Figure: "  at most", Measured: bytesOf(most), Note: "peak since the start"},
	}, err
}
