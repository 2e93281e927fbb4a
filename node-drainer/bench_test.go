package nodedrainer

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/node-drainer/internal/reconciler"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// The size of BenchmarkDrain: go test -bench Drain . -args -drain.pods=5000 -drain.nodes=100.
var (
	benchPods  = flag.Int("drain.pods", 1000, "pods that BenchmarkDrain drains")
	benchNodes = flag.Int("drain.nodes", 20, "nodes that they are spread over")
)

// BenchmarkDrain drains many nodes at once, from the start of the loop to the
// last record's Succeeded, and evicts as many pods of the same nodes directly,
// on the same API server with the same number under way. It reports pods per
// second of both, and how many times longer the drain takes (x-floor).
func BenchmarkDrain(b *testing.B) {
	defaults := defaultConfig()
	bench := newBench(b)
	var baseline, drained time.Duration
	for b.Loop() {
		b.StopTimer()
		baseline += bench.evictBaseline(bench.pods(), defaults.EvictionsInFlight)
		bench.pods()
		drain := bench.drainer(defaults)
		b.StartTimer()
		drained += drain()
	}
	total := float64(*benchPods * b.N)
	b.ReportMetric(total/baseline.Seconds(), "floor-pods/s")
	b.ReportMetric(total/drained.Seconds(), "pods/s")
	b.ReportMetric(drained.Seconds()/baseline.Seconds(), "x-floor")
	b.Logf("%d pods on %d nodes: drained in %s, evicted by hand in %s (%.2f times)", *benchPods, *benchNodes,
		drained.Round(time.Millisecond), baseline.Round(time.Millisecond), drained.Seconds()/baseline.Seconds())
}

// bench is a set of nodes on a real API server, without controllers: an
// evicted pod is gone with the answer, so that nothing but evictions is measured.
type bench struct {
	b      *testing.B
	client kubernetes.Interface
	ns     string
	round  int
}

func newBench(b *testing.B) *bench {
	cluster := localcluster.ForTest(b, localcluster.Options{})
	client, err := kube.ForConfig(cluster.RESTConfig(), kube.Config{}, "bench")
	if err != nil {
		b.Fatal(err)
	}
	return &bench{b: b, client: client.Clientset, ns: cluster.Namespace(b)}
}

func (b *bench) node(i int) string { return fmt.Sprintf("bench-%d-%d", b.round, i%*benchNodes) }

// parallel does something for every index below n, at most limit at once.
func (b *bench) parallel(n, limit int, do func(ctx context.Context, i int) error) {
	group, ctx := errgroup.WithContext(b.b.Context())
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		b.b.Fatal(err)
	}
}

// pods makes new nodes with running pods.
func (b *bench) pods() []*corev1.Pod {
	b.round++
	b.parallel(*benchNodes, 16, func(ctx context.Context, i int) error {
		_, err := b.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node(i)}}, metav1.CreateOptions{})
		return err
	})
	out := make([]*corev1.Pod, *benchPods)
	b.parallel(*benchPods, 32, func(ctx context.Context, i int) error {
		none := int64(0)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: fmt.Sprintf("p-%d-%d", b.round, i), Labels: map[string]string{"app": "bench"}}}
		pod.Spec = corev1.PodSpec{NodeName: b.node(i), TerminationGracePeriodSeconds: &none, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		made, err := b.client.CoreV1().Pods(b.ns).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.Status.Phase = corev1.PodRunning
		out[i], err = b.client.CoreV1().Pods(b.ns).UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	})
	return out
}

// evictBaseline measures the baseline: the same evictions, and nothing else.
func (b *bench) evictBaseline(pods []*corev1.Pod, inFlight int) time.Duration {
	began := time.Now()
	b.parallel(len(pods), inFlight, func(ctx context.Context, i int) error {
		return reconciler.Evict(ctx, b.client, pods[i], 0)
	})
	return time.Since(began)
}

// drainer prepares a drainer with one fault per node, as fault-quarantine leaves
// it, and returns what drains them all.
func (b *bench) drainer(c Config) func() time.Duration {
	db, err := storeopen.Open(b.b.Context(), "sqlite://"+filepath.Join(b.b.TempDir(), "records.db"),
		storeopen.Options{SingleHost: true, Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.b.Fatal(err)
	}
	b.b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.b.Error(err)
		}
	})
	b.parallel(*benchNodes, 16, func(ctx context.Context, i int) error { return b.quarantine(ctx, db, b.node(i)) })
	c.UserNamespaces = []eviction.NamespaceRule{{Name: b.ns, Mode: eviction.Immediate}}
	policy, err := c.Compile()
	if err != nil {
		b.b.Fatal(err)
	}
	cluster, err := reconciler.NewCluster(b.client)
	if err != nil {
		b.b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.b.Context())
	b.b.Cleanup(cancel)
	go func() { _ = cluster.Run(ctx) }()
	if err := cluster.WaitForSync(ctx); err != nil {
		b.b.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	drains := reconciler.New(
		reconciler.Config{Policy: decision.DefaultPolicy(policy), PerNode: c.EvictionsPerNode, InFlight: c.EvictionsInFlight},
		reconciler.Deps{Records: &consumer.Records{Store: db, Writer: record.NodeDrainer}, Client: b.client, Cluster: cluster, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Metrics: reconciler.NewMetrics(registry)})
	loop := drains.Service("node-drainer", c.Workers).Loop(&daemon.Daemon{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Registry: registry})
	return func() time.Duration {
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- loop.Run(ctx) }()
		b.await(registry)
		took := time.Since(began)
		cancel()
		if err := <-ended; err != nil {
			b.b.Error(err)
		}
		return took
	}
}

// quarantine leaves a node with one fault, as fault-quarantine does.
func (b *bench) quarantine(ctx context.Context, db store.Store, name string) error {
	r := record.Record{ID: name, CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
	r.Event = record.Event{ID: name, NodeName: name, Agent: "bench", CheckName: "check", IsFatal: true, ProcessingStrategy: record.Process}
	if _, err := db.Append(ctx, []record.Record{r}); err != nil {
		return err
	}
	r, err := db.Get(ctx, name)
	if err != nil {
		return err
	}
	r.Status.NodeQuarantined, r.Status.Session, r.Status.Faults = record.Quarantined, name, []record.Fault{{Key: "k"}}
	r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}, At: time.Now()}
	if _, err := db.Update(ctx, record.FaultQuarantine, []store.Change{{ID: name, Revision: r.Revision, Status: r.Status}}); err != nil {
		return err
	}
	node, err := kube.ReadNode(ctx, b.client, name)
	if err != nil {
		return err
	}
	_, err = kube.PatchNode(ctx, b.client, node, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{nodemark.SessionAnnotation: name, nodemark.QuarantineHealthEventIsCordoned: nodemark.True}
		n.Labels = map[string]string{nodemark.StateLabel: string(nodemark.Quarantined)}
	})
	return err
}

// await waits until the drains of all nodes have succeeded, at most 10 minutes.
func (b *bench) await(registry *prometheus.Registry) {
	ctx, cancel := context.WithTimeout(b.b.Context(), 10*time.Minute)
	defer cancel()
	for succeeded(registry) < *benchNodes {
		select {
		case <-ctx.Done():
			b.b.Fatalf("%d of %d nodes are drained", succeeded(registry), *benchNodes)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// succeeded counts the records whose drain has succeeded.
func succeeded(registry *prometheus.Registry) int {
	families, err := registry.Gather()
	if err != nil {
		return 0
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "node_drainer_events_processed_total" && m.GetLabel()[0].GetValue() == string(record.EvictionSucceeded) {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}
