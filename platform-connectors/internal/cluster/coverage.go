package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/platform-connectors/coverage"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// This part of the package looks for GPU nodes without a live publisher, by the pods that
// are Ready on them, and reports them to the store.

const (
	// coverageInterval is how often all Nodes are looked at.
	coverageInterval = 15 * time.Second
	// page is how many records one append takes.
	page = 500
)

// What pods and Nodes are known by.
const (
	nameLabel   = "app.kubernetes.io/name"
	partOfLabel = "app.kubernetes.io/part-of"
	gpuLabel    = "nvidia.com/gpu.present"
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
)

// CoverageConfig is what an operator can set.
type CoverageConfig struct {
	// Enabled looks for uncovered nodes.
	Enabled bool `toml:"enabled" flag:"coverage" usage:"If true, role cluster reports GPU nodes without a Ready monitor or connector Pod."`
	// After is how long a node may be without.
	After time.Duration `toml:"after" bounds:"at least 1m" flag:"coverage-after" usage:"Time that a GPU node may be without a Ready publisher before it is reported."`
	// Strategy is that of the reports.
	Strategy string `toml:"processingStrategy" bounds:"PROCESS, PERSIST_ONLY" flag:"coverage-processing-strategy" usage:"Processing strategy of the reports: PERSIST_ONLY or PROCESS."`
	// Namespace is where the pods are.
	Namespace string `toml:"namespace" flag:"coverage-namespace" usage:"Namespace of the Pods of the monitors and connectors."`
	// Publishers and Connectors are values of app.kubernetes.io/name.
	Publishers []string `toml:"publishers" flag:"coverage-publishers" usage:"Monitors of which at least one must be Ready on each GPU node, separated by commas, by the label app.kubernetes.io/name."`
	Connectors []string `toml:"connectors" flag:"coverage-connectors" usage:"Connectors of which at least one must be Ready on each GPU node, separated by commas, by the label app.kubernetes.io/name."`
}

// DefaultCoverage is the configuration without a file: nothing is looked for.
func DefaultCoverage() CoverageConfig {
	return CoverageConfig{
		After: 5 * time.Minute, Strategy: string(record.PersistOnly), Namespace: "nvsentinel",
		Publishers: []string{"syslog-health-monitor", "gpu-health-monitor"}, Connectors: []string{"platform-connectors"},
	}
}

// Validate joins everything that is wrong.
func (c CoverageConfig) Validate() error {
	var problems []error
	if c.After < time.Minute {
		problems = append(problems, fmt.Errorf("coverage.after (--coverage-after) %s is less than 1m, which would report Pods that restart: set at least 1m", c.After))
	}
	if _, err := record.ParseStrategy(c.Strategy); err != nil {
		problems = append(problems, fmt.Errorf("coverage.processingStrategy (--coverage-processing-strategy): %w", err))
	}
	if c.Namespace == "" || len(c.Publishers) == 0 || len(c.Connectors) == 0 {
		problems = append(problems, errors.New("coverage.namespace, publishers or connectors (--coverage-namespace, -publishers, -connectors) is empty: set all of them"))
	}
	for _, name := range slices.Concat(c.Publishers, c.Connectors) {
		if len(validation.IsValidLabelValue(name)) > 0 {
			problems = append(problems, fmt.Errorf("coverage.publishers or connectors (--coverage-publishers, -connectors): %q is not a valid value of the Pod label %s", name, nameLabel))
		}
	}
	return errors.Join(problems...)
}

// CoverageRecords is what is needed of the store.
type CoverageRecords interface {
	List(ctx context.Context, q store.Query) ([]record.Record, error)
	Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error)
}

// Coverage looks at all Nodes. It is made by New.
type Coverage struct {
	config     CoverageConfig
	nodes      corelisters.NodeLister
	synced     func() bool // of the nodes
	watched    informers.SharedInformerFactory
	pods       cache.Store
	podsSynced cache.InformerSynced // of the pods
	records    CoverageRecords
	clock      clock.Clock
	log        *slog.Logger

	uncovered prometheus.Gauge

	missing map[string]time.Time      // since when, as this leader saw
	last    map[string]*record.Record // by node
}

// CoverageOptions of a Watch.
type CoverageOptions struct {
	Config  CoverageConfig
	Client  kubernetes.Interface
	Nodes   *kube.Nodes // made with StripNode
	Records CoverageRecords
	Clock   clock.Clock
	Log     *slog.Logger
}

// NewCoverage prepares a watch; the metric is registered.
func NewCoverage(o CoverageOptions, r prometheus.Registerer) *Coverage {
	watched := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Config.Namespace), informers.WithTransform(slim),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = o.Config.selector() }))
	pods := watched.Core().V1().Pods().Informer()
	w := &Coverage{
		config: o.Config, nodes: o.Nodes.Lister, watched: watched, pods: pods.GetStore(), podsSynced: pods.HasSynced,
		synced: func() bool { ok, _ := o.Nodes.Synced(); return ok }, records: o.Records, clock: o.Clock, log: o.Log,
		uncovered: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_connector_cluster_unmonitored_nodes",
			Help: "GPU nodes on which no monitor or no connector has been Ready for too long, as reported by the leader.",
		}),
	}
	r.MustRegister(w.uncovered)
	return w
}

// StripNode is kube.StripToMarks for the Nodes of a Watch: that a Node has GPUs stays, as
// the label, whichever way the Node shows it.
func StripNode(x any) (any, error) {
	node, ok := x.(*corev1.Node)
	if !ok {
		return x, nil
	}
	gpus := node.Status.Capacity[gpuResource]
	has := node.Labels[gpuLabel] == "true" || !gpus.IsZero()
	stripped, err := kube.StripToMarks(node)
	if has {
		nodemark.Label(node, gpuLabel, "true")
	}
	return stripped, err
}

// selector is that of the pods that are looked for: others never arrive.
func (c CoverageConfig) selector() string {
	return partOfLabel + "=nvsentinel," + nameLabel + " in (" + strings.Join(slices.Concat(c.Publishers, c.Connectors), ",") + ")"
}

// pod is what is kept of one, and what a cache asks for.
type pod struct {
	kube.Packed // no bytes
	name        string
	ready       bool // and stays
}

func slim(x any) (any, error) {
	p, ok := x.(*corev1.Pod)
	if !ok {
		return x, nil
	}
	is := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	return &pod{
		Packed: kube.Packed{Namespace: p.Namespace, Name: p.Name, Version: p.ResourceVersion, Node: p.Spec.NodeName},
		name:   p.Labels[nameLabel], ready: p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, is),
	}, nil
}

// Cache keeps the pods until ctx ends.
func (w *Coverage) Cache(ctx context.Context) error {
	w.watched.Start(ctx.Done())
	<-ctx.Done()
	kube.AwaitStop(w.watched.Shutdown)
	return nil
}

// Run evaluates the nodes until ctx ends, as the leader. For how long something is missing
// is counted from its start, what was reported is read from the store.
func (w *Coverage) Run(ctx context.Context) error {
	w.missing, w.last = map[string]time.Time{}, nil
	failing := false
	for {
		err := w.evaluateNodes(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			w.log.Warn("coverage check failed, retrying", "error", err, "after", coverageInterval)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			w.uncovered.Set(0)
			return nil
		case <-w.clock.After(coverageInterval):
		}
	}
}

// evaluateNodes evaluates every Node once, if the caches are filled.
func (w *Coverage) evaluateNodes(ctx context.Context) error {
	if !w.synced() || !w.podsSynced() {
		return nil
	}
	if w.last == nil {
		if err := w.recall(ctx); err != nil {
			return err
		}
	}
	nodes, err := w.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	ready := w.ready()
	policy := coverage.Policy{After: w.config.After, Strategy: record.Strategy(w.config.Strategy)}
	missing, uncovered, now := map[string]time.Time{}, 0, w.clock.Now()
	var out []record.Record
	for _, node := range nodes {
		v := w.view(node, ready, missing)
		reason := coverage.Decide(v, policy)
		if reason.Uncovered() {
			uncovered++
		}
		if reason == coverage.Report || reason == coverage.Recovered {
			out = append(out, coverage.Record(node.Name, v, policy, reason, now.UTC()))
		}
	}
	w.missing = missing
	w.uncovered.Set(float64(uncovered))
	return w.report(ctx, out)
}

// view is what is known of a Node; what it misses is noted with its time.
func (w *Coverage) view(node *corev1.Node, ready map[string]map[string]bool, missing map[string]time.Time) coverage.View {
	has := func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return ready[node.Name][name] })
	}
	v := coverage.View{
		GPU: node.Labels[gpuLabel] == "true", Publisher: has(w.config.Publishers), Connector: has(w.config.Connectors),
		Machine: kube.NodeIdentity(node), Last: w.last[node.Name],
	}
	if v.Last != nil && fault.Compare(v.Last.Node, v.Machine) == fault.AnotherMachine {
		v.Last = nil // its faults went with it
	}
	if v.Last != nil {
		v.Age = w.clock.Since(v.Last.CreatedAt)
	}
	if v.Missing() {
		since, known := w.missing[node.Name]
		if !known {
			since = w.clock.Now()
		}
		missing[node.Name] = since
		v.For = w.clock.Since(since)
	}
	return v
}

// ready are the names of the pods that are Ready, by node.
func (w *Coverage) ready() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, x := range w.pods.List() {
		p, ok := x.(*pod)
		if !ok || !p.ready {
			continue
		}
		if out[p.Node] == nil {
			out[p.Node] = map[string]bool{}
		}
		out[p.Node][p.name] = true
	}
	return out
}

// recall reads what was reported.
func (w *Coverage) recall(ctx context.Context) error {
	last := map[string]*record.Record{}
	err := store.Each(ctx, w.records, store.Query{Selector: record.Coverage()}, func(r record.Record) error {
		last[r.Event.NodeName] = &r
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the reports about uncovered nodes: %w", err)
	}
	w.last = last
	return nil
}

// report appends records; what the store has is remembered.
func (w *Coverage) report(ctx context.Context, all []record.Record) error {
	for records := range slices.Chunk(all, page) {
		if _, err := w.records.Append(ctx, records); err != nil {
			return fmt.Errorf("reporting %d nodes: %w", len(records), err)
		}
		for _, r := range records {
			w.last[r.Event.NodeName] = &r
			w.log.Info("node coverage changed", "node", r.Event.NodeName, "covered", r.Event.IsHealthy, "message", r.Event.Message, "record", r.ID)
		}
	}
	return nil
}
