// Package scale measures what the suite takes at the size of real fleets: the
// real binaries, with the accounts and rights of the chart, on an API server and
// etcd that hold as many Nodes and ten times as many Pods, and a durable
// PostgreSQL. Each figure is measured at several sizes; what grows faster than the
// nodes is marked.
package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/tests/bench"
)

// The figures that can be selected.
const (
	// Gateways: connections, memory, outages and kills between the connectors of
	// all nodes and the store.
	Gateways = "gateways"
	// Control: memory, processor, start-up and cordons of the control services.
	Control = "control"
)

// Figures lists them in the order in which they are measured.
func Figures() []string { return []string{Control, Gateways} }

// Options of a run.
type Options struct {
	// Root is the repository, Bin the folder of the services, Connectors the program
	// that is the connectors of many nodes (platform-connectors/internal/fleet).
	Root, Bin, Connectors string
	// Nodes are the sizes, in numbers of nodes; each is measured on a cluster of its
	// own, the smallest first.
	Nodes []int
	// Only are the figures to measure; empty means all.
	Only  []string
	Sizes Sizes
	// Profiles is the folder of heap and processor profiles, which programs that were
	// built with Profiling answer with; empty takes none.
	Profiles string
	// Progress hears what takes long.
	Progress io.Writer
}

// Sizes define how much is measured at each number of nodes.
type Sizes struct {
	// PodsPerNode are written to the API server for each node.
	PodsPerNode int
	// Heartbeat is the time between two status writes of one node.
	Heartbeat time.Duration
	// Replicas of each control service, of which one leads.
	Replicas int
	// Steady is how long a service has to be ready without a break to count as ready.
	Steady time.Duration
	// Settle is the time after the start until everything is at rest, Idle how long
	// the processor is then looked at.
	Settle, Idle time.Duration
	// Others is how many faults are stored at the moment at which Reporters nodes
	// report one each through their connectors and as many through the object
	// monitor; Rounds is how often.
	Others, Reporters, Rounds int

	// Gateways is how many gateways there are.
	Gateways int
	// Outage is how long the store, and then all gateways, are away.
	Outage time.Duration
	// Loud nodes report Rate events per second each for Duration, while a gateway is
	// killed each KillEvery.
	Loud, Rate int
	Duration   time.Duration
	KillEvery  time.Duration

	// Limit bounds each wait; a run that exceeds it has failed.
	Limit time.Duration
}

// Full is what `make scale` measures.
func Full() Sizes {
	return Sizes{
		PodsPerNode: 10, Heartbeat: 5 * time.Minute, Replicas: 2, Steady: time.Second, Settle: 30 * time.Second, Idle: time.Minute,
		Others: 200, Reporters: 10, Rounds: 3,
		Gateways: 3, Outage: time.Minute, Loud: 100, Rate: 10, Duration: 10 * time.Minute, KillEvery: 30 * time.Second,
		Limit: 15 * time.Minute,
	}
}

// Check names what is wrong with options.
func (o Options) Check() error {
	var problems []error
	for _, f := range o.Only {
		if !slices.Contains(Figures(), f) {
			problems = append(problems, fmt.Errorf("ONLY %q is not one of %s", f, strings.Join(Figures(), ", ")))
		}
	}
	if len(o.Nodes) == 0 || !slices.IsSorted(o.Nodes) {
		problems = append(problems, fmt.Errorf("NODES %v is not a list of sizes, the smallest first", o.Nodes))
	}
	for _, n := range o.Nodes {
		if n < 2*o.Sizes.Reporters+o.Sizes.Others {
			problems = append(problems, fmt.Errorf("NODES %d is less than the %d nodes that fail at the same time", n, 2*o.Sizes.Reporters+o.Sizes.Others))
		}
	}
	return errors.Join(problems...)
}

func (o Options) wants(figure string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, figure)
}

func (o Options) log(format string, args ...any) {
	fmt.Fprintf(o.Progress, "scale: "+format+"\n", args...)
}

// Run measures and returns the table. A figure that misses its target is no
// error; one that could not be measured is, and the others are still returned.
func Run(ctx context.Context, o Options) (bench.Table, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	var found []figure
	var problems []error
	for _, n := range o.Nodes {
		for _, step := range []struct {
			name    string
			measure func(context.Context, Options, int) ([]figure, error)
		}{{Control, control}, {Gateways, gateways}} {
			if !o.wants(step.name) || ctx.Err() != nil {
				continue
			}
			began := time.Now()
			figures, err := step.measure(ctx, o, n)
			found = append(found, figures...)
			if err != nil {
				problems = append(problems, fmt.Errorf("measuring %s with %d nodes: %w", step.name, n, err))
			}
			o.log("%s with %d nodes took %s", step.name, n, time.Since(began).Round(time.Second))
		}
	}
	return table(found), errors.Join(append(problems, ctx.Err())...)
}
