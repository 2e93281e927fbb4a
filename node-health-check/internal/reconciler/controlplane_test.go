package reconciler

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// Two checks by two remediators, a control-plane node of each falls: one is remediated,
// the other waits for it.
func TestTheControlPlaneOfTwoChecks(t *testing.T) {
	one, two := newWorld(t, "plane-one"), newWorld(t, "plane-two")
	two.leases = one.leases
	namespace := one.cluster.Namespace(t)
	for _, w := range []*world{one, two} {
		_, err := w.cluster.AddNode(t.Context(), localcluster.NodeSpec{
			Name: w.prefix + "-cp", Labels: map[string]string{"pool": w.prefix, "node-role.kubernetes.io/control-plane": ""},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.cluster.DeleteNode(context.WithoutCancel(t.Context()), w.prefix+"-cp") })
		w.fall(w.prefix + "-cp")
	}
	first, second := one.template(rebootKind, ""), two.template(selfKind, namespace)
	names := []string{
		one.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &first }),
		two.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &second }),
	}
	one.start(nil, nil)
	made := func() int { return len(one.objects(rebootKind)) + len(two.objects(selfKind)) }
	for _, name := range names {
		one.settle(name, "its node is listed", func(s v1alpha1.NodeHealthCheckStatus) bool { return len(s.UnhealthyNodes) == 1 })
	}
	if made() != 1 {
		t.Fatalf("%d control-plane nodes are remediated at once", made())
	}
	remediated, waits := one, two
	if len(one.objects(rebootKind)) == 0 {
		remediated, waits = two, one
	}
	remediated.heal(remediated.prefix + "-cp")
	remediated.settle(remediated.prefix, "it recovers", func(s v1alpha1.NodeHealthCheckStatus) bool { return len(s.UnhealthyNodes) == 0 })
	waits.poke(waits.prefix + "-cp")
	waits.settle(waits.prefix, "it has its turn", remediations(1))
	testkit.Until(t, waitTimeout, func() bool { return made() == 1 })
}

// A check whose kind may not be read holds up the control-plane nodes of another check,
// which reports it, and none of its workers.
func TestAKindThatCannotBeReadHoldsNoWorker(t *testing.T) {
	one, two := newWorld(t, "plane-read"), newWorld(t, "plane-unread")
	two.leases = one.leases
	worker, plane := one.node("w"), one.node("cp")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`))
	if err := one.live.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: plane}}, patch); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []schema.GroupVersionKind{rebootKind, selfKind} { // of other tests: nobody collects garbage here
		left, err := one.labelled(kind)
		if err != nil {
			t.Fatal(err)
		}
		for i := range left {
			if err := one.live.Delete(t.Context(), &left[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	one.fall(worker)
	one.fall(plane)
	first, second := one.template(rebootKind, ""), two.template(selfKind, one.cluster.Namespace(t))
	name := one.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &first })
	two.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &second })
	var refuses atomic.Bool
	refuses.Store(true)
	one.start(func(config *rest.Config, _ *Deps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if refuses.Load() && strings.HasSuffix(r.URL.Path, "/selfnoderemediations") {
					return answer(r, http.StatusForbidden, "Forbidden"), nil
				}
				return next.RoundTrip(r)
			})
		})
	}, nil)
	s := one.settle(name, "the worker is remediated", remediations(1))
	if u := s.UnhealthyNodes[0]; u.Name != plane || len(u.Remediations) != 0 || !strings.Contains(u.Waiting, "NodeHealthCheck plane-unread") {
		t.Errorf("the control-plane node: %+v", u)
	}
	refuses.Store(false)
	one.poke(plane)
	one.settle(name, "both are remediated", remediations(2))
}

// labelled are the remediations of control-plane nodes, of all tests.
func (w *world) labelled(kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := w.live.List(w.t.Context(), list, client.MatchingLabels{v1alpha1.ControlPlaneLabel: ""})
	return list.Items, err
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	value := func(name string) map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]float64{}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, one := range f.GetMetric() {
				key := ""
				for _, l := range one.GetLabel() {
					key += l.GetName() + "=" + l.GetValue() + " "
				}
				found[key] = one.GetGauge().GetValue() + one.GetCounter().GetValue() + one.GetHistogram().GetSampleSum()
			}
		}
		return found
	}
	storm := true
	running := v1alpha1.NodeHealthCheckStatus{StormRecoveryActive: &storm, UnhealthyNodes: []v1alpha1.UnhealthyNode{{
		Name: "n", Remediations: []v1alpha1.Remediation{(&triage.Remediation{Kind: selfKind, Namespace: "ns", Name: "n"}).Record()},
	}}}
	now := metav1.Now().Time
	m.count("c", running, triage.Plan{Census: triage.Census{Observed: 3, Healthy: 2, Required: 1}}, now)
	m.old("n", "ns")
	ongoing := "name=n namespace=ns remediation=SelfNodeRemediation "
	for name, want := range map[string]float64{"nodehealthcheck_ongoing_remediation": 1, "nodehealthcheck_unhealthy_node_duration_seconds": 0} {
		if got := value(name)[ongoing]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if value("nodehealthcheck_old_remediation_cr")["name=n namespace=ns "] != 1 || value("nvsentinel_node_health_check_storm_recovery_active")["check=c "] != 1 || value("nvsentinel_node_health_check_nodes")["check=c state=healthy "] != 2 {
		t.Error("the other metrics are wrong")
	}
	m.count("c", v1alpha1.NodeHealthCheckStatus{}, triage.Plan{Ended: []triage.Ended{{Node: "n", Kind: selfKind.Kind, Namespace: "ns", Started: now.Add(-time.Minute)}}}, now)
	if value("nodehealthcheck_ongoing_remediation")[ongoing] != 0 || value("nodehealthcheck_unhealthy_node_duration_seconds")[ongoing] != 60 {
		t.Error("the end of a remediation is not shown")
	}
	m.forget("c")
	if len(value("nvsentinel_node_health_check_nodes")) != 0 {
		t.Error("a check that is gone is still counted")
	}
}
