package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/tests/bench"
)

// control measures the control services beside a number of nodes.
func control(ctx context.Context, o Options, nodes int) (figures []figure, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := newSite(ctx, o, nodes)
	if err != nil {
		return nil, err
	}
	defer func() {
		cancel() // heartbeats and watches end before the API server does
		err = errors.Join(err, s.stop())
	}()
	if err := s.furnish(ctx, o.Sizes.PodsPerNode); err != nil {
		return nil, err
	}
	u, err := newSuite(ctx, s)
	if err != nil {
		return nil, err
	}
	go s.beat(ctx)
	figures, err = u.measureControl(ctx)
	if err != nil && ctx.Err() == nil {
		s.logs(o.Progress, 5)
	}
	return figures, err
}

// measureControl starts the services one after the other, looks at them at rest, and
// then has nodes fail.
func (u *suite) measureControl(ctx context.Context) ([]figure, error) {
	gateways := u.gateways()
	if err := u.raise(ctx, gateways); err != nil {
		return nil, err
	}
	if !u.o.wants(Gateways) { // which has the connectors of all nodes
		u.services = append(u.services, gateways)
	}
	if _, err := u.connectors(ctx, 0, u.o.Sizes.Reporters); err != nil {
		return nil, err
	}
	others, err := u.control(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range others {
		u.services = append(u.services, v)
		if err := u.raise(ctx, v); err != nil {
			return nil, err
		}
	}
	figures, err := u.measureIdle(ctx)
	if err = errors.Join(err, u.profile(ctx, "rest")); err != nil {
		return figures, err
	}
	cordons, err := u.fail(ctx)
	figures = append(figures, cordons...)
	if err != nil {
		return figures, err
	}
	peaks, err := u.peaks()
	return append(figures, peaks...), errors.Join(err, u.profile(ctx, "storms"))
}

// fail has nodes fail, and looks at what their cordons cost.
func (u *suite) fail(ctx context.Context) ([]figure, error) {
	l, err := u.follow(ctx)
	if err != nil {
		return nil, err
	}
	before, err := u.used()
	if err != nil {
		return nil, err
	}
	out, err := u.storms(ctx, l)
	if err != nil {
		return nil, err
	}
	after, err := u.used()
	if err != nil {
		return nil, err
	}
	cordons := u.o.Sizes.Rounds * (2*u.o.Sizes.Reporters + u.o.Sizes.Others)
	for _, v := range u.services {
		var spent time.Duration
		for _, p := range v.running {
			spent += after[p.name].processor - before[p.name].processor
		}
		out = append(out, figure{
			nodes: u.nodes, name: v.name + ": processor for each cordon", value: seconds(spent / time.Duration(cordons)), growth: cordonGrowth, trifle: 0.001, level: true,
			note: fmt.Sprintf("all replicas, %d cordons and releases, with the heartbeats meanwhile", cordons),
		})
	}
	return out, nil
}

// The bounds of the growth of a service, and the values below which growth does not count.
const (
	processorGrowth, processorTrifle = 1.25, 20 // millicores
	startGrowth, startTrifle         = 1.5, 3   // seconds
)

// measureIdle looks at the services while nothing but heartbeats comes.
func (u *suite) measureIdle(ctx context.Context) ([]figure, error) {
	if err := u.settle(ctx); err != nil {
		return nil, err
	}
	u.o.log("looking at all services for %s", u.o.Sizes.Idle)
	before, err := u.used()
	if err != nil {
		return nil, err
	}
	if err := u.pause(ctx, u.o.Sizes.Idle); err != nil {
		return nil, err
	}
	after, err := u.used()
	if err != nil {
		return nil, err
	}
	var out []figure
	for _, v := range u.services {
		out = append(out, u.ofService(v, before, after)...)
	}
	beside, err := u.beside()
	return append(out, beside...), err
}

// settle waits until nothing comes to the services but heartbeats: the labeler writes
// labels of all nodes when it starts, and everyone hears of each.
func (u *suite) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.o.Sizes.Limit)
	defer cancel()
	for before := -1.0; ; {
		written, err := u.labelled(ctx)
		if err != nil {
			return err
		}
		if written == before {
			return nil
		}
		before = written
		u.o.log("all services run, %.0f labels are written; waiting for %s without another one", written, u.o.Sizes.Settle)
		if err := u.pause(ctx, u.o.Sizes.Settle); err != nil {
			return err
		}
	}
}

// labelled is how many labels the labeler has written.
func (u *suite) labelled(ctx context.Context) (labels float64, err error) {
	for _, v := range u.services {
		for _, p := range v.running {
			if v.name == "labeler" {
				n, problem := p.metric(ctx, "nvsentinel_labeler_label_changes_total")
				labels, err = labels+n, errors.Join(err, problem)
			}
		}
	}
	return labels, err
}

// used is what each process takes, by its name.
func (u *suite) used() (map[string]usage, error) {
	out := map[string]usage{}
	var problems []error
	for _, v := range u.services {
		for _, p := range v.running {
			now, err := usageOf(p.pid())
			out[p.name] = now
			problems = append(problems, err)
		}
	}
	return out, errors.Join(problems...)
}

// ofService is what all replicas of a service take together, and the slowest start.
func (u *suite) ofService(v *service, before, after map[string]usage) []figure {
	var resident, own int64
	var spent time.Duration
	var each []string
	for _, p := range v.running {
		now := after[p.name]
		resident, own = resident+now.resident, own+now.own
		spent += now.processor - before[p.name].processor
		each = append(each, bytesOf(now.resident).String())
	}
	n := u.nodes
	return []figure{
		{
			nodes: n, name: v.name + ": memory", value: bytesOf(resident), growth: bendAllowed, part: true,
			note: fmt.Sprintf("resident, the leader first: %s; heap and stacks %s, the rest is the program's file", strings.Join(each, ", "), bytesOf(own)),
		},
		{
			nodes: n, name: v.name + ": processor at rest", value: millicores(spent, u.o.Sizes.Idle), growth: processorGrowth, trifle: processorTrifle,
			note: fmt.Sprintf("all replicas, over %s, a heartbeat of each node every %s", u.o.Sizes.Idle, u.o.Sizes.Heartbeat),
		},
		{
			nodes: n, name: v.name + ": start to ready", value: seconds(slices.Max(v.ready)), growth: startGrowth, trifle: startTrifle,
			note: fmt.Sprintf("the slowest of %d replicas, one after the other", len(v.ready)),
		},
	}
}

// peaks are the most that a replica of each service ever took, beside what the chart
// lets it take.
func (u *suite) peaks() ([]figure, error) {
	chart, err := u.values()
	if err != nil {
		return nil, err
	}
	now, err := u.used()
	if err != nil {
		return nil, err
	}
	var out []figure
	for _, v := range u.services {
		w, err := chart.of(v.name)
		if err != nil {
			return nil, err
		}
		var most int64
		for _, p := range v.running {
			most = max(most, now[p.name].most)
		}
		out = append(out, figure{
			nodes: u.nodes, name: v.name + ": memory of a replica at most", value: bytesOf(most), target: bench.Target{Under: bytesOf(w.Resources.Limits.Memory.Value())},
			note: "since its start, which fills the caches; target: the chart's limit, beyond which it would be killed",
		})
	}
	return out, nil
}
