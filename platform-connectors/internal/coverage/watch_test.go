package coverage

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// books is a store in memory.
type books struct{ stored []record.Record }

func (b *books) List(_ context.Context, q store.Query) ([]record.Record, error) {
	var out []record.Record
	for _, r := range b.stored {
		if q.Selector.Matches(r) && r.Append > q.After {
			out = append(out, r)
		}
	}
	return out, nil
}

func (b *books) Append(_ context.Context, records []record.Record) (out []store.AppendResult, _ error) {
	for _, r := range records {
		result := store.Duplicate
		if !slices.ContainsFunc(b.stored, func(s record.Record) bool { return s.ID == r.ID }) {
			r.Append = int64(len(b.stored)) + 1
			b.stored, result = append(b.stored, r), store.Appended
		}
		out = append(out, result)
	}
	return out, nil
}

// told is what is stored, as "<node>+" for a fault and "<node>-" for its end.
func (b *books) told() string {
	var out []string
	for _, r := range b.stored {
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
	_ = c.pods.Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + node, Namespace: "nvsentinel", Labels: map[string]string{nameLabel: name}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	})
}

// lead is one replica's time as the leader, in the bubble's time.
func lead(t *testing.T, c cluster, b *books, d time.Duration) *Watch {
	t.Helper()
	whole := func() bool { return true }
	w := &Watch{
		config: Default(), nodes: corelisters.NewNodeLister(c.nodes), synced: whole, lister: corelisters.NewPodLister(c.pods), known: whole,
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

// TestANodeIsReportedAndRecovers, once each, whoever leads.
func TestANodeIsReportedAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newCluster(), &books{}
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
		if got := b.told(); got != "" {
			t.Fatalf("after four minutes: %q", got)
		}
		time.AfterFunc(3*time.Minute, func() { c.pod("starting", "syslog-health-monitor", corev1.ConditionTrue) })
		w := lead(t, c, b, 7*time.Minute)
		told := strings.Fields(b.told())
		slices.Sort(told)
		if got := strings.Join(told, " "); got != "bare+ deaf+" || testutil.ToFloat64(w.uncovered) != 2 {
			t.Fatalf("after seven more: %q, %v uncovered", got, testutil.ToFloat64(w.uncovered))
		}
		c.pod("deaf", "platform-connectors", corev1.ConditionTrue)
		w = lead(t, c, b, 10*time.Minute)
		if got := b.told(); len(b.stored) != 3 || !strings.HasSuffix(got, " deaf-") || testutil.ToFloat64(w.uncovered) != 1 {
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
	if err := Default().Validate(); err != nil || Default().Enabled {
		t.Errorf("the default: %v, enabled %t", err, Default().Enabled)
	}
	for want, change := range map[string]func(*Config){
		"less than 1m":       func(c *Config) { c.After = time.Second },
		"processingStrategy": func(c *Config) { c.Strategy = "x" },
		"is empty":           func(c *Config) { c.Publishers = nil },
	} {
		c := Default()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
