package transform

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Nodes knows nodes for the metadata; nil is not known.
type Nodes interface {
	Node(ctx context.Context, name string, limits pipeline.Metadata) *pipeline.Node
}

// Runner runs the pipeline of a file. It is safe for concurrent use.
type Runner struct {
	file    string
	permit  bool // see pipeline.Config.PersistOnlyToProcess
	wide    []string
	nodes   Nodes
	follows *daemon.FileFollower
	log     *slog.Logger
	metrics *Metrics

	mu        sync.Mutex
	current   *pipeline.Pipeline
	warned    map[string]bool // rules whose failure is in the log
	listeners []func()
}

// Options of a Runner.
type Options struct {
	// File names the stages; without one nothing is changed.
	File string
	// PersistOnlyToProcess is that of pipeline.Config.
	PersistOnlyToProcess bool
	// ClusterWide is that of pipeline.Config.
	ClusterWide []string

	Nodes   Nodes
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics
}

// Open reads and compiles the pipeline. At the start a bad file is an error.
func Open(o Options) (*Runner, error) {
	r := &Runner{file: o.File, permit: o.PersistOnlyToProcess, wide: o.ClusterWide, nodes: o.Nodes, log: o.Log, metrics: o.Metrics}
	r.follows = &daemon.FileFollower{Files: func() []string { return named(r.file) }, Take: r.take, Told: r.told, Clock: o.Clock}
	return r, r.follows.Start()
}

// Run reads the files again whenever they change, until ctx ends. A bad content
// changes nothing: the pipeline before it runs on, and log, metric and readiness
// say so.
func (r *Runner) Run(ctx context.Context) error {
	if r.file == "" {
		return nil
	}
	return r.follows.Run(ctx)
}

// OnChange calls notify when other rules run. It must not block and is registered
// before Run.
func (r *Runner) OnChange(notify func()) { r.listeners = append(r.listeners, notify) }

func (r *Runner) take() error {
	c, err := load(r.file)
	if err != nil {
		return err
	}
	c.PersistOnlyToProcess, c.ClusterWide = r.permit, r.wide
	next, err := pipeline.Compile(c)
	if err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	for _, text := range next.Warnings() {
		r.log.Warn("the pipeline's configuration is valid and questionable", "file", r.file, "warning", text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.warned = next, map[string]bool{}
	for _, notify := range r.listeners {
		notify()
	}
	return nil
}

// told says what became of a new content.
func (r *Runner) told(err error) {
	r.metrics.reloaded(err)
	if err != nil {
		r.log.Error("the pipeline's new configuration is bad; the one before it stays", "file", r.file, "error", err)
		return
	}
	r.log.Info("the pipeline's configuration is new", "file", r.file, "stages", r.pipeline().Config().Stages)
}

// Ready says whether the files on disk are what runs.
func (r *Runner) Ready() (bool, string) {
	if trouble := r.follows.Trouble(); trouble != "" {
		return false, "the configuration on disk is bad, the one before it runs: " + trouble
	}
	return true, fmt.Sprintf("stages %v", r.pipeline().Config().Stages)
}

// Change is what the pipeline makes of a record for the node's conditions.
func (r *Runner) Change(ctx context.Context, rec record.Record) record.Record {
	p := r.pipeline()
	rec.Event, _ = p.Apply(rec.Event, r.node(ctx, p, rec.Event.NodeName))
	return rec
}

// Judge is what the pipeline makes of an event, and what it says of its
// confirmation. Where no rule confirms anything, that is the event as it is, for
// nothing.
func (r *Runner) Judge(ctx context.Context, rec record.Record) (record.Event, pipeline.Notes) {
	p := r.pipeline()
	if !p.Confirms() {
		return rec.Event, pipeline.Notes{}
	}
	return p.Apply(rec.Event, r.node(ctx, p, rec.Event.NodeName))
}

func (r *Runner) pipeline() *pipeline.Pipeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

func (r *Runner) node(ctx context.Context, p *pipeline.Pipeline, name string) *pipeline.Node {
	if !p.NeedsNode() {
		return nil
	}
	return r.nodes.Node(ctx, name, p.Config().Metadata)
}

// done is what was decided about one record.
type done struct {
	record record.Record
	notes  pipeline.Notes
}

// Transform changes records for the sink.
func (r *Runner) Transform(ctx context.Context, records []record.Record) ([]record.Record, func([]store.AppendResult)) {
	p := r.pipeline()
	if p.Idle() {
		return slices.Clone(records), func([]store.AppendResult) {}
	}
	out, decided := make([]record.Record, 0, len(records)), make([]done, 0, len(records))
	for _, rec := range records {
		d := done{record: rec}
		d.record.Event, d.notes = p.Apply(rec.Event, r.node(ctx, p, rec.Event.NodeName))
		if !reflect.DeepEqual(d.record.Event, rec.Event) {
			d.record.Accepted = record.Content(rec)
		}
		out, decided = append(out, d.record), append(decided, d)
	}
	return out, func([]store.AppendResult) { r.settle(decided) }
}

// settle counts what was done to stored records.
func (r *Runner) settle(decided []done) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range decided {
		r.metrics.count(d)
		for _, f := range d.notes.Failed {
			if !r.warned[f.Rule] {
				r.warned[f.Rule] = true
				r.log.Warn("a rule of the pipeline could not be evaluated and did not match; this is said once",
					"rule", f.Rule, "event", d.record.ID, "error", f.Err)
			}
		}
	}
}
