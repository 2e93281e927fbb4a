package faultremediation

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// BenchmarkRepairAfterDrain measures, one fault after the other, the time from
// the drainer's status update (made when the last pod is gone) to the maintenance object that
// a watch sees, by the whole service on a real API server; and, on the same
// store and API server before it, the physical baseline: the status update, its
// notification, and a manual creation. It reports the p50 and p99 of both in
// milliseconds, and how many times the baseline's p50 the service's is.
func BenchmarkRepairAfterDrain(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		repairAfterDrain(b, func() string { return "sqlite://" + filepath.Join(b.TempDir(), "records.db") })
	})
	b.Run("postgresql", func(b *testing.B) {
		server := pgtest.Own(b, pgtest.Options{})
		databases := 0
		repairAfterDrain(b, func() string {
			databases++
			dsn, err := server.CreateDatabase(b.Context(), fmt.Sprintf("bench%d", databases))
			if err != nil {
				b.Fatal(err)
			}
			return dsn
		})
	})
}

func repairAfterDrain(b *testing.B, newStore func() string) {
	x := newBench(b)
	baselineStore, serviceStore := newStore(), newStore()
	var baseline, service []time.Duration
	x.open(baselineStore)
	stop := x.baseline()
	for range max(b.N, 20) {
		baseline = append(baseline, x.once())
	}
	stop()
	x.open(serviceStore)
	daemon.RunForTest(b, name, defaultConfig(), build, "--store="+serviceStore, "--single-host", "--kubeconfig="+x.cluster.AdminKubeconfig(), "--log-level=error")
	x.once() // the service has started when its first object is there
	for b.Loop() {
		service = append(service, x.once())
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(quantile(baseline, 50)), "floor-p50-ms")
	b.ReportMetric(ms(quantile(baseline, 99)), "floor-p99-ms")
	b.ReportMetric(ms(quantile(service, 50)), "p50-ms")
	b.ReportMetric(ms(quantile(service, 99)), "p99-ms")
	b.ReportMetric(ms(quantile(service, 50))/ms(quantile(baseline, 50)), "x-floor")
}

func quantile(samples []time.Duration, percent int) time.Duration {
	s := slices.Sorted(slices.Values(samples))
	return s[(len(s)-1)*percent/100]
}

// drainBench is an API server, a store and a watch of maintenance objects.
type drainBench struct {
	*world
	b       *testing.B
	round   int
	watcher watch.Interface
}

func newBench(b *testing.B) *drainBench {
	b.Helper()
	cluster := localcluster.ForTest(b, localcluster.Options{})
	applyCRD(b, cluster)
	x := &drainBench{world: &world{t: b, cluster: cluster}, b: b}
	var err error
	if x.watcher, err = cluster.Dynamic().Resource(rebootNodes).Watch(b.Context(), metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(x.watcher.Stop)
	return x
}

// open opens a store in place of the last.
func (x *drainBench) open(dsn string) {
	x.b.Helper()
	records, err := storeopen.Open(x.b.Context(), dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		x.b.Fatal(err)
	}
	x.records = records
	x.b.Cleanup(func() { _ = records.Close() })
}

// once makes a fault on a new node and measures from the drainer's status update to the
// object.
func (x *drainBench) once() time.Duration {
	x.round++
	node := fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), x.round)
	x.addNode(node)
	x.quarantinedFault("r-"+node, node)
	began := time.Now()
	x.updateStatus(record.NodeDrainer, "r-"+node, drained)
	timeout := time.After(time.Minute)
	for {
		select {
		case e := <-x.watcher.ResultChan():
			o, ok := e.Object.(*unstructured.Unstructured)
			if name, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); ok && e.Type == watch.Added && name == node {
				return time.Since(began)
			}
		case <-timeout:
			x.b.Fatalf("no maintenance object of %s within a minute", node)
		}
	}
}

// baseline runs the baseline: whatever is drained gets an object at once, and nothing
// else is done.
func (x *drainBench) baseline() (stop func()) {
	ctx, cancel := context.WithCancel(x.b.Context())
	feed, err := x.records.Feed(ctx, "by-hand", record.QuarantinedAndDrainedNodes())
	if err != nil {
		x.b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- x.createEach(ctx, feed) }()
	return func() {
		cancel()
		if err := <-done; ctx.Err() == nil && err != nil {
			x.b.Fatal(err)
		}
		_ = feed.Close()
	}
}

func (x *drainBench) createEach(ctx context.Context, feed store.Feed) error {
	for {
		r, _, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": rebootNodes.GroupVersion().String(), "kind": "RebootNode",
			"metadata": map[string]any{"name": r.Event.NodeName}, "spec": map[string]any{"nodeName": r.Event.NodeName},
		}}
		if _, err := x.cluster.Dynamic().Resource(rebootNodes).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
}
