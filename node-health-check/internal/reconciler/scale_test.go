package reconciler

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

const (
	scaleNodes  = 5000
	scaleChecks = 50
	scaleFallen = 500
	scaleLanes  = 64
)

// TestScale: heartbeats of a large cluster make no request, a pass is a matter of
// milliseconds, and 500 nodes that are unhealthy at once get a remediation each. The
// log has the figures.
func TestScale(t *testing.T) {
	testkit.Long(t, "TestHeartbeats, TestABusyAPIServer")
	w := newWorld(t, "scale")
	nodes := w.crowd()
	ref := w.template(rebootKind, "")
	var checks []string
	for i := range scaleChecks {
		part := *w
		part.prefix = fmt.Sprintf("scale-%02d", i)
		checks = append(checks, part.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref }))
	}
	var requests atomic.Int64
	count := func(config *rest.Config) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Query().Get("watch") == "" {
					requests.Add(1)
				}
				return next.RoundTrip(r)
			})
		})
	}
	began := time.Now()
	w.start(func(config *rest.Config, d *Deps) {
		count(config)
		claims, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		d.Claims.Client, d.Workers, d.Log = claims, scaleLanes, discard()
	}, nil)
	for _, name := range checks {
		w.settle(name, "it works", phase(v1alpha1.PhaseEnabled))
	}
	t.Logf("%d checks of %d nodes work after %s", scaleChecks, scaleNodes, time.Since(began))

	w.measureIdle(&requests)
	passes, _ := reconciled(t)
	before := requests.Load()
	lanes(nodes[:1000], func(name string) { w.beat(name) })
	w.poke(nodes[0])
	testkit.Until(t, waitTimeout, func() bool { n, _ := reconciled(t); return n > passes })
	quiet, _ := reconciled(t)
	t.Logf("1000 heartbeats and one change of a label: %d passes, %d requests", quiet-passes, requests.Load()-before)
	if quiet-passes > 3 {
		t.Errorf("%d passes for heartbeats", quiet-passes)
	}
	passes, spent := reconciled(t)
	lanes(nodes[:scaleChecks], w.poke)
	testkit.Until(t, waitTimeout, func() bool { n, _ := reconciled(t); return n >= passes+scaleChecks })
	n, all := reconciled(t)
	t.Logf("%d passes at rest, %s each", n-passes, (all-spent)/time.Duration(n-passes))
	w.manyFall(nodes[:scaleFallen], checks, &requests)
}

// idleTime is for how long what rest costs is measured.
const idleTime = 20 * time.Second

// measureIdle measures a reconciler to which nothing happens, in a process that does nothing else.
func (w *world) measureIdle(requests *atomic.Int64) {
	w.t.Helper()
	passes, _ := reconciled(w.t)
	before, spent, began := requests.Load(), cpu(w.t), time.Now()
	testkit.Until(w.t, waitTimeout, func() bool { return time.Since(began) > idleTime })
	took := time.Since(began)
	after, _ := reconciled(w.t)
	w.t.Logf("at rest for %s: %d passes, %d requests, %.2f %% of a processor (with the test's own looking)",
		took.Round(time.Second), after-passes, requests.Load()-before, 100*(cpu(w.t)-spent).Seconds()/took.Seconds())
	if n := requests.Load() - before; n > 0 {
		w.t.Errorf("%d requests at rest", n)
	}
}

// cpu is the processor time that the process has taken.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// manyFall has nodes of all checks fall while the checks are paused, and times what
// follows when they no longer are.
func (w *world) manyFall(nodes, checks []string, requests *atomic.Int64) {
	w.t.Helper()
	pause := func(why string) func(string) {
		return func(name string) {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"pauseRequests":`+why+`}}`))
			if err := w.live.Patch(w.t.Context(), &v1alpha1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch); err != nil {
				w.t.Error(err)
			}
		}
	}
	lanes(checks, pause(`["the test"]`))
	lanes(nodes, w.fall)
	for _, name := range checks {
		w.settle(name, "it is paused", func(s v1alpha1.NodeHealthCheckStatus) bool {
			return s.Phase == v1alpha1.PhasePaused && len(s.UnhealthyNodes) == len(nodes)/len(checks)
		})
	}
	began := time.Now()
	lanes(nodes, func(name string) {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": name}}}
		o.SetGroupVersionKind(rebootKind)
		o.SetName("floor-" + name)
		if err := w.live.Create(w.t.Context(), o); err != nil {
			w.t.Error(err)
		}
	})
	baseline, before := time.Since(began), requests.Load()
	began = time.Now()
	lanes(checks, pause("null"))
	for _, name := range checks {
		w.settle(name, "its nodes have remediations", remediations(len(nodes)/len(checks)))
	}
	took := time.Since(began)
	w.t.Logf("%d remediations by %d checks in %s, %d requests; %d creations alone in %s (%.1f times)",
		len(nodes), len(checks), took, requests.Load()-before, len(nodes), baseline, took.Seconds()/baseline.Seconds())
	if made := len(w.objects(rebootKind)); made != len(nodes) {
		w.t.Errorf("%d remediations of %d nodes", made, len(nodes))
	}
}

// crowd makes the nodes, spread over the checks, without anything that plays them.
func (w *world) crowd() []string {
	w.t.Helper()
	var names []string
	for i := range scaleNodes {
		names = append(names, fmt.Sprintf("scale-%05d", i))
	}
	nodes := w.cluster.Client().CoreV1().Nodes()
	w.t.Cleanup(func() {
		ctx := context.WithoutCancel(w.t.Context())
		_ = nodes.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "crowd=scale"})
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(rebootKind)
		_ = w.live.DeleteAllOf(ctx, o)
	})
	at := metav1.NewTime(w.clock.Now().Add(-time.Hour))
	lanes(names, func(name string) {
		var i int
		_, _ = fmt.Sscanf(name, "scale-%d", &i)
		_, err := nodes.Create(w.t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"crowd": "scale", "pool": fmt.Sprintf("scale-%02d", i%scaleChecks)}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: at}}},
		}, metav1.CreateOptions{})
		if err != nil {
			w.t.Error(err)
		}
	})
	return names
}

// beat is a heartbeat of a node.
func (w *world) beat(name string) {
	patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339)))
	if err := w.live.Status().Patch(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch); err != nil {
		w.t.Error(err)
	}
}

// lanes does something for all names, scaleLanes at once.
func lanes(names []string, do func(string)) {
	var all sync.WaitGroup
	for lane := range scaleLanes {
		all.Go(func() {
			for i := lane; i < len(names); i += scaleLanes {
				do(names[i])
			}
		})
	}
	all.Wait()
}

// reconciled is how many passes the controller has made, and how long they took.
func reconciled(t *testing.T) (passes int, took time.Duration) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_time_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			passes += int(m.GetHistogram().GetSampleCount())
			took += time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
		}
	}
	return passes, took
}
