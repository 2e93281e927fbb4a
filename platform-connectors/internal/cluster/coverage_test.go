package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// memoryStore is a store in memory.
type memoryStore struct{ stored []record.Record }

func (m *memoryStore) List(_ context.Context, q store.Query) ([]record.Record, error) {
	var out []record.Record
	for _, r := range m.stored {
		if q.Selector.Matches(r) && r.Append > q.After {
			out = append(out, r)
		}
	}
	return out, nil
}

func (m *memoryStore) Append(_ context.Context, records []record.Record) (out []store.AppendResult, _ error) {
	for _, r := range records {
		result := store.Duplicate
		if !slices.ContainsFunc(m.stored, func(s record.Record) bool { return s.ID == r.ID }) {
			r.Append = int64(len(m.stored)) + 1
			m.stored, result = append(m.stored, r), store.Appended
		}
		out = append(out, result)
	}
	return out, nil
}

// storedText is what is stored, as "<node>+" for a fault and "<node>-" for its end.
func (m *memoryStore) storedText() string {
	var out []string
	for _, r := range m.stored {
		sign := "+"
		if r.Event.IsHealthy {
			sign = "-"
		}
		out = append(out, r.Event.NodeName+sign)
	}
	return strings.Join(out, " ")
}

// cluster is what the caches show.
type cluster struct{ nodes, pods cache.Indexer }

func newCluster() cluster {
	return cluster{cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)}
}

func (c cluster) node(name string, gpu string) {
	_ = c.nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{gpuLabel: gpu}}})
}

func (c cluster) pod(node, name string, ready corev1.ConditionStatus) {
	slimmed, _ := slim(published(node, name, ready))
	_ = c.pods.Add(slimmed)
}

func published(node, name string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + node, Namespace: "nvsentinel", Labels: map[string]string{nameLabel: name}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

// lead is one replica's time as the leader, in the bubble's time.
func lead(t *testing.T, c cluster, b *memoryStore, d time.Duration) *Coverage {
	t.Helper()
	whole := func() bool { return true }
	w := &Coverage{
		config: DefaultCoverage(), nodes: corelisters.NewNodeLister(c.nodes), synced: whole, pods: c.pods, podsSynced: whole,
		records: b, clock: clock.RealClock{}, log: slog.New(slog.DiscardHandler), uncovered: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}),
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	seen := make(chan float64, 1)
	time.AfterFunc(d-time.Second, func() { seen <- testutil.ToFloat64(w.uncovered) })
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	w.uncovered.Set(<-seen)
	return w
}

// TestANodeIsReportedAndRecovers: both happen once, whichever replica leads.
func TestANodeIsReportedAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newCluster(), &memoryStore{}
		for _, node := range []string{"bare", "covered", "deaf", "starting"} {
			c.node(node, "true")
		}
		c.node("cpu", "false")
		for node, ready := range map[string]corev1.ConditionStatus{"covered": corev1.ConditionTrue, "starting": corev1.ConditionFalse, "deaf": corev1.ConditionTrue} {
			c.pod(node, "syslog-health-monitor", ready)
		}
		c.pod("covered", "platform-connectors", corev1.ConditionTrue)
		c.pod("starting", "platform-connectors", corev1.ConditionTrue)
		lead(t, c, b, 4*time.Minute)
		if got := b.storedText(); got != "" {
			t.Fatalf("after four minutes: %q", got)
		}
		time.AfterFunc(3*time.Minute, func() { c.pod("starting", "syslog-health-monitor", corev1.ConditionTrue) })
		w := lead(t, c, b, 7*time.Minute)
		reported := strings.Fields(b.storedText())
		slices.Sort(reported)
		if got := strings.Join(reported, " "); got != "bare+ deaf+" || testutil.ToFloat64(w.uncovered) != 2 {
			t.Fatalf("after seven more: %q, %v uncovered", got, testutil.ToFloat64(w.uncovered))
		}
		c.pod("deaf", "platform-connectors", corev1.ConditionTrue)
		w = lead(t, c, b, 10*time.Minute)
		if got := b.storedText(); len(b.stored) != 3 || !strings.HasSuffix(got, " deaf-") || testutil.ToFloat64(w.uncovered) != 1 {
			t.Errorf("in the end: %q, %v uncovered", got, testutil.ToFloat64(w.uncovered))
		}
		for _, r := range b.stored {
			if r.Acts() {
				t.Errorf("%s acts", r.ID)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	if err := DefaultCoverage().Validate(); err != nil || DefaultCoverage().Enabled {
		t.Errorf("the default: %v, enabled %t", err, DefaultCoverage().Enabled)
	}
	for want, change := range map[string]func(*CoverageConfig){
		"less than 1m":                 func(c *CoverageConfig) { c.After = time.Second },
		"processingStrategy":           func(c *CoverageConfig) { c.Strategy = "x" },
		"is empty":                     func(c *CoverageConfig) { c.Publishers = nil },
		"\"a,b\" is not a valid value": func(c *CoverageConfig) { c.Connectors = []string{"a,b"} },
	} {
		c := DefaultCoverage()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestCachedPodFields: whether it is Ready and stays, whose it is, and what a cache asks
// for.
func TestCachedPodFields(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		ready  bool
	}{
		"ready":          {func(*corev1.Pod) {}, true},
		"not ready":      {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		"not said":       {func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"another's news": {func(p *corev1.Pod) { p.Status.Conditions[0].Type = corev1.PodInitialized }, false},
		"going":          {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, false},
	} {
		p := published("n", "platform-connectors", corev1.ConditionTrue)
		p.ResourceVersion = "7"
		tt.change(p)
		got, err := slim(p)
		want := pod{Packed: kube.Packed{Namespace: p.Namespace, Name: p.Name, Version: "7", Node: "n"}, name: "platform-connectors", ready: tt.ready}
		if kept, ok := got.(*pod); err != nil || !ok || !reflect.DeepEqual(*kept, want) {
			t.Errorf("of a pod that is %s there is %+v, %v; want %+v", name, got, err, want)
		}
		if again, err := slim(got); err != nil || again != got {
			t.Errorf("of what is kept there is %v, %v", again, err)
		}
	}
}

func TestWatchIsFiltered(t *testing.T) {
	selector, err := labels.Parse(DefaultCoverage().selector())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"gpu-health-monitor nvsentinel": true, "platform-connectors nvsentinel": true,
		"node-drainer nvsentinel": false, "gpu-health-monitor other": false, "gpu-health-monitor ": false,
	} {
		app, suite, _ := strings.Cut(name, " ")
		if got := selector.Matches(labels.Set{nameLabel: app, partOfLabel: suite}); got != want {
			t.Errorf("%q arrives: %t", name, got)
		}
	}
}

// BenchmarkPodCache reports what a pod takes in the heap, once in the cache.
func BenchmarkPodCache(b *testing.B) {
	const pods = 10_000
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		c, before := newCluster(), heap()
		for i := range pods {
			slimmed, err := slim(arrived(b, i))
			if err != nil {
				b.Fatal(err)
			}
			if err := c.pods.Add(slimmed); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((heap()-before)/pods, "B/pod")
		runtime.KeepAlive(c)
	}
}

// arrived is a pod of 4 KB as a watch brings it: no string of it is another pod's too.
func arrived(b *testing.B, i int) *corev1.Pod {
	sent := published(fmt.Sprintf("gpu-%d", i/2), []string{"platform-connectors", "syslog-health-monitor"}[i%2], corev1.ConditionTrue)
	sent.UID, sent.ResourceVersion = types.UID(fmt.Sprintf("%036d", i)), fmt.Sprint(1_000_000+i)
	maps.Copy(sent.Labels, map[string]string{partOfLabel: "nvsentinel", "app": "x", "controller-revision-hash": "5d4f8c7b9d", "pod-template-generation": "1"})
	for _, c := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodScheduled} {
		sent.Status.Conditions = append(sent.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)})
	}
	sent.Spec.Containers = []corev1.Container{{Name: "main", Image: "nvcr.io/nvidia/nvsentinel:1.0.0"}}
	for k := range 50 {
		sent.Spec.Containers[0].Env = append(sent.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", k), Value: strings.Repeat("v", 50)})
	}
	raw, err := sent.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(raw); err != nil {
		b.Fatal(err)
	}
	return pod
}

// TestGPUNodeDetection: by the label, or by what it offers before feature
// discovery has labelled it; either stays where the rest is dropped.
func TestGPUNodeDetection(t *testing.T) {
	for name, tt := range map[string]struct {
		label string
		count int64
		want  string
	}{
		"by the label":        {"true", 0, "true"},
		"by what it offers":   {"", 8, "true"},
		"by neither":          {"", 0, ""},
		"labelled otherwise":  {"false", 0, ""},
		"labelled against it": {"false", 8, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{gpuLabel: tt.label, corev1.LabelHostname: "n"}}}
			node.Status.Capacity = corev1.ResourceList{gpuResource: *resource.NewQuantity(tt.count, resource.DecimalSI)}
			for range 2 { // what is stripped already stays
				if _, err := StripNode(node); err != nil || node.Labels[gpuLabel] != tt.want {
					t.Errorf("%v, label %q, want %q", err, node.Labels[gpuLabel], tt.want)
				}
			}
		})
	}
}
