// Package transform carries out the pipeline: it reads its files and reads them
// again when they change, knows the nodes, and changes records on their way from
// the spool to the sinks. What becomes of an event is decided by package
// pipeline.
package transform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
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
	r.follows = &daemon.FileFollower{Files: func() []string { return named(r.file) }, Take: r.take, OnReload: r.recordReload, Clock: o.Clock}
	return r, r.follows.Start()
}

// Run reads the files again whenever they change, until ctx ends. A bad content
// changes nothing: the pipeline before it runs on, and log, metric and readiness
// report it.
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
		r.log.Warn("pipeline configuration has warnings", "file", r.file, "warning", text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.warned = next, map[string]bool{}
	for _, notify := range r.listeners {
		notify()
	}
	return nil
}

// recordReload records in log and metrics whether a new content was taken.
func (r *Runner) recordReload(err error) {
	r.metrics.reloaded(err)
	if err != nil {
		r.log.Error("invalid pipeline configuration rejected, the previous one stays active", "file", r.file, "error", err)
		return
	}
	r.log.Info("pipeline configuration loaded", "file", r.file, "stages", r.pipeline().Config().Stages)
}

// Ready reports whether the files on disk are what runs.
func (r *Runner) Ready() (bool, string) {
	if trouble := r.follows.Trouble(); trouble != "" {
		return false, "the configuration on disk is invalid and the previous one is active: " + trouble
	}
	return true, fmt.Sprintf("stages %v", r.pipeline().Config().Stages)
}

// Change is what the pipeline makes of a record for the node's conditions.
func (r *Runner) Change(ctx context.Context, rec record.Record) record.Record {
	p := r.pipeline()
	rec.Event, _ = p.Apply(rec.Event, r.node(ctx, p, rec.Event.NodeName))
	return rec
}

// Evaluate returns the pipeline's form of an event, and notes on its confirmation. Where no
// rule confirms anything, it returns the event as it is, at no cost.
func (r *Runner) Evaluate(ctx context.Context, rec record.Record) (record.Event, pipeline.Notes) {
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
				r.log.Warn("pipeline rule evaluation failed, treated as no match (logged once per rule)",
					"rule", f.Rule, "event", d.record.ID, "error", f.Err)
			}
		}
	}
}

// load reads the file that names the stages, and theirs; without a file there are
// none. Unknown keys and wrong values are errors that name file and key.
func load(file string) (pipeline.Config, error) {
	c := pipeline.Default()
	if file == "" {
		return c, nil
	}
	var order pipeline.Order
	problems := []error{decode(file, &order)}
	for _, s := range order.Stages {
		if !s.Enabled {
			continue
		}
		if s.Name == pipeline.StageRetired {
			c.Retired = true
			continue
		}
		c.Stages = append(c.Stages, s.Name)
		target := map[string]any{
			pipeline.StageMetadata: &c.Metadata, pipeline.StageOverrides: &c.Overrides,
			pipeline.StageConfirmation: &c.Confirmation,
		}[s.Name]
		switch {
		case target == nil: // Validate reports it
		case s.Config == "":
			problems = append(problems, fmt.Errorf("%s: stage %s has no config", file, s.Name))
		default:
			problems = append(problems, decode(beside(file, s.Config), target))
		}
	}
	return c, errors.Join(problems...)
}

// named are the file and those of its stages, as far as it can be read.
func named(file string) []string {
	if file == "" {
		return nil
	}
	var order pipeline.Order
	names := []string{file}
	if err := decode(file, &order); err != nil {
		return names
	}
	for _, s := range order.Stages {
		if s.Enabled && s.Config != "" && s.Name != pipeline.StageRetired {
			names = append(names, beside(file, s.Config))
		}
	}
	return names
}

// beside is a name that may be relative to the folder of the file that has it.
func beside(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// decode reads a strict TOML file over the defaults in target.
func decode(path string, target any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return config.Decode(path, content, target)
}

// readDeadline bounds the reading of one Node.
const readDeadline = 3 * time.Second

// Cluster knows the connector's own node from its watch, and others, of which
// cluster-wide publishers speak, from a cache of reads. A node that cannot be
// read is not known; the event goes on without.
type Cluster struct {
	// Own is the connector's node by name, Object its Node as last seen, or nil.
	Own    string
	Object func() *corev1.Node
	// Client is nil without Kubernetes.
	Client *nodeclient.Client
	Clock  clock.PassiveClock
	Log    *slog.Logger

	mu    sync.Mutex
	size  int
	cache *cache.LRUExpireCache
}

// Node is what is known of a node.
func (c *Cluster) Node(ctx context.Context, name string, limits pipeline.Metadata) *pipeline.Node {
	if name == c.Own {
		return nodeMetadata(c.Object())
	}
	if c.Client == nil {
		return nil
	}
	cached := c.sized(limits.CacheSize)
	if n, ok := cached.Get(name); ok {
		if n, ok := n.(*pipeline.Node); ok {
			return n
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	object, err := c.Client.Nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		c.Log.Warn("event processed without node metadata", "node", name, "error", err)
		return nil
	}
	n := nodeMetadata(object)
	cached.Add(name, n, limits.CacheTTL)
	return n
}

// sized is the cache, a new one when its size was changed.
func (c *Cluster) sized(size int) *cache.LRUExpireCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache == nil || c.size != size {
		c.cache, c.size = cache.NewLRUExpireCacheWithClock(size, c.Clock), size
	}
	return c.cache
}

func nodeMetadata(object *corev1.Node) *pipeline.Node {
	if object == nil {
		return nil
	}
	return &pipeline.Node{ProviderID: object.Spec.ProviderID, Labels: object.Labels}
}
