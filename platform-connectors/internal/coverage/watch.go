// Package coverage looks for GPU nodes without a live publisher, by the pods that
// are Ready on them, and reports them to the store.
package coverage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/platform-connectors/coverage"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// lookEvery is how often all Nodes are looked at.
	lookEvery = 15 * time.Second
	// page is how many records one append takes.
	page = 500
)

// What pods and Nodes are known by.
const (
	nameLabel   = "app.kubernetes.io/name"
	partOf      = "app.kubernetes.io/part-of=nvsentinel"
	gpuLabel    = "nvidia.com/gpu.present"
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
)

// Config is what an operator can set.
type Config struct {
	// Enabled looks for uncovered nodes.
	Enabled bool `toml:"enabled" flag:"coverage" usage:"role cluster: look for GPU nodes without a Ready monitor or connector pod, and report them"`
	// After is how long a node may be without.
	After time.Duration `toml:"after" flag:"coverage-after" usage:"how long a GPU node may be without a live publisher until it is reported"`
	// Strategy is that of the reports.
	Strategy string `toml:"processingStrategy" flag:"coverage-processing-strategy" usage:"strategy of the reports: PERSIST_ONLY or PROCESS"`
	// Namespace is where the pods are.
	Namespace string `toml:"namespace" flag:"coverage-namespace" usage:"namespace of the monitors' and connectors' pods"`
	// Publishers and Connectors are values of app.kubernetes.io/name.
	Publishers []string `toml:"publishers" flag:"coverage-publishers" usage:"monitors of which one has to be Ready on each GPU node, by the label app.kubernetes.io/name, with commas"`
	Connectors []string `toml:"connectors" flag:"coverage-connectors" usage:"connectors of which one has to be Ready on each GPU node, by the label app.kubernetes.io/name, with commas"`
}

// Default is the configuration without a file: nothing is looked for.
func Default() Config {
	return Config{
		After: 5 * time.Minute, Strategy: string(record.PersistOnly), Namespace: "nvsentinel",
		Publishers: []string{"syslog-health-monitor", "gpu-health-monitor"}, Connectors: []string{"platform-connectors"},
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	var problems []error
	if c.After < time.Minute {
		problems = append(problems, fmt.Errorf("coverage.after (--coverage-after) %s is less than 1m: a pod that is restarted would be reported", c.After))
	}
	if _, err := record.ParseStrategy(c.Strategy); err != nil {
		problems = append(problems, fmt.Errorf("coverage.processingStrategy (--coverage-processing-strategy): %w", err))
	}
	if c.Namespace == "" || len(c.Publishers) == 0 || len(c.Connectors) == 0 {
		problems = append(problems, errors.New("coverage.namespace, publishers or connectors (--coverage-namespace, -publishers, -connectors) is empty"))
	}
	return errors.Join(problems...)
}

// Records is what is needed of the store.
type Records interface {
	List(ctx context.Context, q store.Query) ([]record.Record, error)
	Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error)
}

// Watch looks at all Nodes. It is made by New.
type Watch struct {
	config  Config
	nodes   corelisters.NodeLister
	synced  func() bool // of the nodes
	pods    informers.SharedInformerFactory
	lister  corelisters.PodLister
	known   cache.InformerSynced // of the pods
	records Records
	clock   clock.Clock
	log     *slog.Logger

	uncovered prometheus.Gauge

	missing map[string]time.Time      // since when, as this leader saw
	last    map[string]*record.Record // by node
}

// Options of a Watch.
type Options struct {
	Config  Config
	Client  kubernetes.Interface
	Nodes   *kube.Nodes
	Records Records
	Clock   clock.Clock
	Log     *slog.Logger
}

// New prepares a watch; the metric is registered.
func New(o Options, r prometheus.Registerer) *Watch {
	pods := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Config.Namespace), informers.WithTransform(slim),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = partOf }))
	w := &Watch{
		config: o.Config, nodes: o.Nodes.Lister, pods: pods, lister: pods.Core().V1().Pods().Lister(), known: pods.Core().V1().Pods().Informer().HasSynced,
		synced: func() bool { ok, _ := o.Nodes.Synced(); return ok }, records: o.Records, clock: o.Clock, log: o.Log,
		uncovered: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_uncovered_nodes",
			Help: "GPU nodes on which no monitor, or no connector, has been Ready for too long, as the leader sees them.",
		}),
	}
	r.MustRegister(w.uncovered)
	return w
}

// slim keeps of a pod what is looked at.
func slim(x any) (any, error) {
	pod, ok := x.(*corev1.Pod)
	if !ok {
		return x, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels, DeletionTimestamp: pod.DeletionTimestamp},
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName}, Status: corev1.PodStatus{Conditions: pod.Status.Conditions},
	}, nil
}

// Cache keeps the pods until ctx ends.
func (w *Watch) Cache(ctx context.Context) error {
	w.pods.Start(ctx.Done())
	<-ctx.Done()
	kube.AwaitStop(w.pods.Shutdown)
	return nil
}

// Run looks until ctx ends, as the leader. What was missing before is counted anew,
// what was reported is read from the store.
func (w *Watch) Run(ctx context.Context) error {
	w.missing, w.last = map[string]time.Time{}, nil
	failing := false
	for {
		err := w.look(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			w.log.Warn("looking for nodes without a live publisher failed; it is tried again", "error", err, "after", lookEvery)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			w.uncovered.Set(0)
			return nil
		case <-w.clock.After(lookEvery):
		}
	}
}

// look judges every Node once. Caches that are not whole say nothing.
func (w *Watch) look(ctx context.Context) error {
	if !w.synced() || !w.known() {
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
	ready, err := w.ready()
	if err != nil {
		return err
	}
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
func (w *Watch) view(node *corev1.Node, ready map[string]map[string]bool, missing map[string]time.Time) coverage.View {
	has := func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return ready[node.Name][name] })
	}
	gpus := node.Status.Capacity[gpuResource]
	v := coverage.View{
		GPU: node.Labels[gpuLabel] == "true" || !gpus.IsZero(), Publisher: has(w.config.Publishers), Connector: has(w.config.Connectors),
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
func (w *Watch) ready() (map[string]map[string]bool, error) {
	pods, err := w.lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	out := map[string]map[string]bool{}
	for _, pod := range pods {
		is := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
		if pod.DeletionTimestamp != nil || !slices.ContainsFunc(pod.Status.Conditions, is) {
			continue
		}
		if out[pod.Spec.NodeName] == nil {
			out[pod.Spec.NodeName] = map[string]bool{}
		}
		out[pod.Spec.NodeName][pod.Labels[nameLabel]] = true
	}
	return out, nil
}

// recall reads what was reported.
func (w *Watch) recall(ctx context.Context) error {
	last := map[string]*record.Record{}
	err := store.Each(ctx, w.records, store.Query{Selector: record.Coverage()}, func(r record.Record) error {
		last[r.Event.NodeName] = &r
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading what was reported of uncovered nodes: %w", err)
	}
	w.last = last
	return nil
}

// report appends records; what the store has is remembered.
func (w *Watch) report(ctx context.Context, all []record.Record) error {
	for records := range slices.Chunk(all, page) {
		if _, err := w.records.Append(ctx, records); err != nil {
			return fmt.Errorf("reporting %d nodes: %w", len(records), err)
		}
		for _, r := range records {
			w.last[r.Event.NodeName] = &r
			w.log.Info("coverage of a node has changed", "node", r.Event.NodeName, "covered", r.Event.IsHealthy, "message", r.Event.Message, "record", r.ID)
		}
	}
	return nil
}
