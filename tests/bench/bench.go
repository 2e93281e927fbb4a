// Package bench measures what the suite does per second, and how soon, with
// the real binaries on a real control plane and a durable PostgreSQL, and puts
// each figure beside a baseline: the same work done manually, measured in the same
// run on the same file system with the same concurrency and bytes. The baselines
// are the files baseline_*.go, at most 60 lines each.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/tests/fleet"
)

// The figures that can be selected.
const (
	// Ingest: acknowledgements, and the way into PostgreSQL.
	Ingest = "ingest"
	// Memory: resident memory and idle CPU.
	Memory = "memory"
	// Cordon: from an accepted event to a cordoned node.
	Cordon = "cordon"
	// Repair: from the last pod to the maintenance object.
	Repair = "repair"
	// Drain: evicting the pods of many nodes.
	Drain = "drain"
	// Storm: many nodes failing at once.
	Storm = "storm"
	// Noisy: cordons of other nodes beside one that never stops reporting, without a
	// quota of nodes and with one.
	Noisy = "noisy"
	// History: feeds and queries over short and long histories.
	History = "history"
	// Stores: what every store takes for each operation, without a history and
	// with a long one.
	Stores = "stores"
	// Objects: the object monitor over many objects.
	Objects = "objects"
	// Exporter: from the store to a receiver.
	Exporter = "exporter"
	// Analyzer: faults over short and long histories, against all rules.
	Analyzer = "analyzer"
	// Janitor: many reboots at once.
	Janitor = "janitor"
)

// Figures lists them in the order in which they are measured.
func Figures() []string {
	return []string{Ingest, Memory, Cordon, Repair, Drain, Storm, Noisy, History, Stores, Objects, Exporter, Analyzer, Janitor}
}

// onCluster are the figures that share one fleet.
var onCluster = []string{Memory, Cordon, Repair, Drain, Storm}

// spared are the services that run for Memory, and for what follows if asked for.
var spared = []string{"janitor", "csp-plugin-kwok"}

// Options of a run.
type Options struct {
	// Root is the repository, Bin the folder of the services' binaries.
	Root, Bin string
	// Connectors is the program that runs the connectors of many nodes.
	Connectors string
	// Against is a folder of other binaries with the names of Bin's, which are
	// measured in turns with them; empty is none.
	Against string
	// Janitor has the janitor and its plugin run beside cordon, repair, drain and storm.
	Janitor bool
	// Only are the figures to measure; empty means all.
	Only  []string
	Sizes Sizes
	// Progress hears what takes long.
	Progress io.Writer
}

// Sizes define how much is measured.
type Sizes struct {
	// Acks is how many events one publisher sends, one after the other.
	Acks int
	// Events is how many events Publishers send together.
	Events, Publishers int
	// Nodes and Pods are the cluster for Memory; other figures use parts of it.
	Nodes, Pods int
	// Idle is how long the idle node agents are watched.
	Idle time.Duration
	// Cordons and Repairs are how often these two are measured.
	Cordons, Repairs int
	// DrainNodes bear PodsPerNode pods each.
	DrainNodes, PodsPerNode int
	// Storm is how many nodes fail at once.
	Storm int
	// Noise is how long one node reports NoiseRate events per second beside
	// NoiseNodes others, without a quota and with one of NoiseQuota records a day.
	Noise                             time.Duration
	NoiseRate, NoiseNodes, NoiseQuota int
	// Short and Long are records of history, MongoDB those of the stand-in for
	// it, which is slow; 0 does not measure it.
	Short, Long, MongoDB int
	// Deep is a third history, for the analyzer alone; 0 is none.
	Deep int
	// Queries is how often each query and feed is measured.
	Queries int
	// ObjectNodes and ObjectPods are what the object monitor watches, Changes how
	// often one of them changes.
	ObjectNodes, ObjectPods, Changes int
	// Reboots is how many RebootNodes are created at once.
	Reboots int
	// Limit bounds each wait; a run that exceeds it has failed.
	Limit time.Duration
}

// Full is what `make bench` measures.
func Full() Sizes {
	return Sizes{
		Acks: 2000, Events: 100_000, Publishers: 64, Nodes: 1000, Pods: 10_000, Idle: time.Minute,
		Cordons: 200, Repairs: 20, DrainNodes: 50, PodsPerNode: 100, Storm: 500,
		Noise: 5 * time.Minute, NoiseRate: 1000, NoiseNodes: 20, NoiseQuota: 5000,
		Short: 10_000, Long: 1_000_000, MongoDB: 2000, Queries: 200,
		ObjectNodes: 5000, ObjectPods: 50_000, Changes: 500, Reboots: 500, Limit: 10 * time.Minute,
	}
}

// Quick is a tenth of it, to try things.
func Quick() Sizes {
	return Sizes{
		Acks: 200, Events: 10_000, Publishers: 64, Nodes: 100, Pods: 1000, Idle: 6 * time.Second,
		Cordons: 20, Repairs: 5, DrainNodes: 5, PodsPerNode: 100, Storm: 50,
		Noise: 30 * time.Second, NoiseRate: 1000, NoiseNodes: 20, NoiseQuota: 5000,
		Short: 1000, Long: 100_000, MongoDB: 200, Queries: 50,
		ObjectNodes: 500, ObjectPods: 5000, Changes: 50, Reboots: 50, Limit: 5 * time.Minute,
	}
}

// Check names what is wrong with what was asked for.
func (o Options) Check() error {
	var problems []error
	for _, f := range o.Only {
		if !slices.Contains(Figures(), f) {
			problems = append(problems, fmt.Errorf("ONLY %q is not one of %s", f, strings.Join(Figures(), ", ")))
		}
	}
	if o.Against != "" {
		for _, service := range fleet.Services() {
			if _, err := os.Stat(filepath.Join(o.Against, binaryOf(service))); err != nil {
				problems = append(problems, fmt.Errorf("AGAINST: %w", err))
			}
		}
	}
	return errors.Join(problems...)
}

func (o Options) wants(figure string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, figure)
}

func (o Options) log(format string, args ...any) {
	fmt.Fprintf(o.Progress, "bench: "+format+"\n", args...)
}

// figure measures some figures.
type figure func(context.Context, Options) ([]Row, error)

// only is a figure that measures no other.
func only(name string, f figure) figure {
	return func(ctx context.Context, o Options) ([]Row, error) {
		o.Only = []string{name}
		return f(ctx, o)
	}
}

// Run measures and returns the table. A figure that misses its target is no
// error; one that could not be measured is, and the others are still returned.
func Run(ctx context.Context, o Options) (Table, error) {
	var t Table
	var problems []error
	measure := func(wanted bool, name string, f figure) {
		if !wanted || ctx.Err() != nil {
			return
		}
		began := time.Now()
		rows, err := f(ctx, o)
		t = append(t, rows...)
		if err != nil {
			problems = append(problems, fmt.Errorf("measuring %s: %w", name, err))
		}
		o.log("%s took %s", name, time.Since(began).Round(time.Second))
	}
	measure(o.wants(Ingest), Ingest, inTurns(ingest))
	if o.Against == "" {
		measure(slices.ContainsFunc(onCluster, o.wants), "the cluster's figures", cluster)
	} else {
		for _, name := range onCluster { // each in turns of its own, close to each other
			measure(o.wants(name), name, inTurns(only(name, cluster)))
		}
	}
	measure(o.wants(Noisy), Noisy, inTurns(noisy))
	measure(o.wants(History) || o.wants(Stores), "the stores", oneSide(history))
	measure(o.wants(Objects), Objects, inTurns(objects))
	measure(o.wants(Exporter), Exporter, inTurns(exporter))
	measure(o.wants(Analyzer), Analyzer, inTurns(analyzer))
	measure(o.wants(Janitor), Janitor, inTurns(reboots))
	return t, errors.Join(append(problems, ctx.Err())...)
}

// binaryOf returns the name of a service's binary.
func binaryOf(service string) string {
	switch service {
	case fleet.Connector:
		return "node-connector"
	case fleet.Gateway:
		return "platform-connectors"
	}
	return service
}
