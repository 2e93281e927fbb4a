package reconciler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// A node falls, is remediated by an object that its remediator can work with, and
// recovers; nothing is left behind.
func TestRemediationLifecycle(t *testing.T) {
	w := newWorld(t, "life")
	a := w.node("a")
	w.node("b")
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	w.start(nil, nil)
	s := w.settle(name, "the check works", phase(v1alpha1.PhaseEnabled))
	if *s.ObservedNodes != 2 || *s.HealthyNodes != 2 || s.StormRecoveryActive != nil || len(s.Conditions) != 1 {
		t.Errorf("status %+v", s)
	}
	w.fall(a)
	s = w.settle(name, "the node is remediated", phase(v1alpha1.PhaseRemediating))
	made := w.objects(rebootKind)
	if len(made) != 1 || made[0].GetName() != a || made[0].GetAnnotations()[v1alpha1.NodeNameAnnotation] != a || !isCheck(made[0].GetOwnerReferences()[0]) {
		t.Fatalf("made %v", made)
	}
	if r := s.UnhealthyNodes[0].Remediations[0]; r.Resource.UID != made[0].GetUID() || !r.Started.Equal(new(made[0].GetCreationTimestamp())) {
		t.Errorf("recorded %+v", r)
	}
	held, err := w.cluster.Client().CoordinationV1().Leases(w.leases).Get(t.Context(), nodelease.Name(a), metav1.GetOptions{})
	if err != nil || *held.Spec.HolderIdentity != "NodeHealthCheck-life" || *held.Spec.LeaseDurationSeconds != 660 {
		t.Errorf("lease %+v, %v", held, err)
	}
	w.heal(a)
	w.settle(name, "all is well", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return s.Phase == v1alpha1.PhaseEnabled && len(s.UnhealthyNodes) == 0 && *s.HealthyNodes == 2
	})
	if left := w.objects(rebootKind); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	testkit.Until(t, waitTimeout, func() bool {
		_, err := w.cluster.Client().CoordinationV1().Leases(w.leases).Get(t.Context(), nodelease.Name(a), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	testkit.Until(t, waitTimeout, func() bool {
		list, err := w.cluster.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=life"})
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, e := range list.Items {
			reasons = append(reasons, e.Reason)
			if !strings.HasPrefix(e.Message, "[remediation] ") {
				t.Errorf("event %q", e.Message)
			}
		}
		all := strings.Join(reasons, " ")
		return strings.Contains(all, "DetectedUnhealthy") && strings.Contains(all, "RemediationCreated") && strings.Contains(all, "RemediationRemoved")
	})
}

// A controller that dies between making a remediation and writing the status leaves
// its successor one that is found, not made again.
func TestCrashBetweenObjectAndStatus(t *testing.T) {
	for point, objects := range map[string]int{"claimed": 0, "created": 1, "acted": 1} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, "death-"+point)
			a := w.node("a")
			ref := w.template(rebootKind, "")
			w.fall(a)
			name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
			// A dead process makes no request any more.
			var dead atomic.Bool
			died := make(chan struct{})
			stop := w.start(func(config *rest.Config, _ *Deps) {
				config.Wrap(func(next http.RoundTripper) http.RoundTripper {
					return transport(func(r *http.Request) (*http.Response, error) {
						if dead.Load() {
							return nil, errors.New("killed by the test")
						}
						return next.RoundTrip(r)
					})
				})
			}, func(c *Reconciler) {
				c.here = func(at string) {
					if at == "node-health-check/"+point && len(w.objects(rebootKind)) == objects && dead.CompareAndSwap(false, true) {
						close(died)
					}
				}
			})
			select {
			case <-died:
			case <-time.After(waitTimeout):
				t.Fatal("it never came to the place")
			}
			stop()
			made := w.objects(rebootKind)
			if len(made) != objects || len(w.status(name).UnhealthyNodes) != 0 {
				t.Fatalf("before: %d objects, status %+v", len(made), w.status(name))
			}
			w.start(nil, nil)
			s := w.settle(name, "the node is remediated", phase(v1alpha1.PhaseRemediating))
			after := w.objects(rebootKind)
			if len(after) != 1 || objects == 1 && after[0].GetUID() != made[0].GetUID() || s.UnhealthyNodes[0].Remediations[0].Resource.UID != after[0].GetUID() {
				t.Errorf("after: %v, status %+v", after, s)
			}
		})
	}
}

// Remediators of medik8s, played by their public contract: the first reports that it
// failed, the second removes the node.
func TestRemediatorsOfOthers(t *testing.T) {
	w := newWorld(t, "others")
	a := w.node("a")
	w.node("b")
	namespace := w.cluster.Namespace(t)
	first, second := w.template(selfKind, namespace), w.template(deletionKind, namespace)
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) {
		s.EscalatingRemediations = []v1alpha1.EscalatingRemediation{
			{RemediationTemplate: second, Order: 2, Timeout: metav1.Duration{Duration: time.Hour}},
			{RemediationTemplate: first, Order: 1, Timeout: metav1.Duration{Duration: 5 * time.Minute}},
		}
	})
	w.start(nil, nil)
	w.fall(a)
	w.settle(name, "the first is tried", remediations(1))
	made := w.objects(selfKind)
	if len(made) != 1 || made[0].GetNamespace() != namespace || len(w.objects(deletionKind)) != 0 {
		t.Fatalf("made %v", made)
	}
	w.report(&made[0], "Processing", metav1.ConditionTrue)
	w.report(&made[0], v1alpha1.ConditionSucceeded, metav1.ConditionFalse)
	s := w.settle(name, "the second is tried", remediations(2))
	if u := s.UnhealthyNodes[0]; u.Remediations[0].TimedOut == nil || u.Remediations[1].TimedOut != nil || u.Remediations[1].Resource.Kind != deletionKind.Kind {
		t.Errorf("status %+v", u)
	}
	reported := w.objects(selfKind)
	if _, err := time.Parse(time.RFC3339, reported[0].GetAnnotations()[v1alpha1.TimedOutAnnotation]); err != nil {
		t.Errorf("the first was told %v: %v", reported[0].GetAnnotations(), err)
	}
	gone := w.objects(deletionKind)
	w.report(&gone[0], v1alpha1.ConditionDeletionExpected, metav1.ConditionTrue)
	if err := w.cluster.DeleteNode(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.settle(name, "only the second is left", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return *s.ObservedNodes == 1 && len(w.objects(selfKind)) == 0
	})
	gone = w.objects(deletionKind)
	if len(gone) != 1 {
		t.Fatalf("the remediation that expects its node to go was not left: %v", gone)
	}
	w.report(&gone[0], v1alpha1.ConditionSucceeded, metav1.ConditionTrue)
	w.settle(name, "nothing is left", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return len(w.objects(deletionKind)) == 0 && s.Phase == v1alpha1.PhaseEnabled
	})
}

// The time of a remediation is up, and the next one begins; all are taken away when
// the node recovers.
func TestATimeout(t *testing.T) {
	w := newWorld(t, "timeout")
	a := w.node("a")
	namespace := w.cluster.Namespace(t)
	first, second := w.template(rebootKind, ""), w.template(selfKind, namespace)
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) {
		s.EscalatingRemediations = []v1alpha1.EscalatingRemediation{
			{RemediationTemplate: first, Order: 1, Timeout: metav1.Duration{Duration: time.Minute}},
			{RemediationTemplate: second, Order: 2, Timeout: metav1.Duration{Duration: time.Hour}},
		}
	})
	w.start(nil, nil)
	w.fall(a)
	w.settle(name, "the first is tried", remediations(1))
	w.clock.step(62 * time.Second)
	w.poke(a)
	w.settle(name, "the second is tried", remediations(2))
	w.heal(a)
	w.settle(name, "nothing is left", phase(v1alpha1.PhaseEnabled))
	if len(w.objects(rebootKind))+len(w.objects(selfKind)) != 0 {
		t.Error("remediations are left")
	}
}

// A template that is not there, then one that means nothing, then a good one; and one
// whose kind nobody serves.
func TestTemplatesThatCannotBeUsed(t *testing.T) {
	w := newWorld(t, "templates")
	a := w.node("a")
	w.fall(a)
	namespace := w.cluster.Namespace(t)
	ref := v1alpha1.TemplateReference{APIVersion: selfKind.GroupVersion().String(), Kind: "SelfNodeRemediationTemplate", Namespace: namespace, Name: w.prefix}
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	w.start(nil, nil)
	disabled := func(reason string) {
		t.Helper()
		s := w.settle(name, "it is disabled: "+reason, func(s v1alpha1.NodeHealthCheckStatus) bool {
			return len(s.Conditions) == 1 && s.Conditions[0].Status == metav1.ConditionTrue && s.Conditions[0].Reason == reason
		})
		if s.Phase != v1alpha1.PhaseDisabled || !strings.Contains(s.Reason, reason) || *s.ObservedNodes != 1 {
			t.Errorf("status %+v", s)
		}
	}
	disabled(v1alpha1.ReasonTemplateNotFound)
	empty := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{}}}}
	empty.SetGroupVersionKind(selfKind.GroupVersion().WithKind("SelfNodeRemediationTemplate"))
	empty.SetNamespace(namespace)
	empty.SetName(w.prefix)
	if err := w.live.Create(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	disabled(v1alpha1.ReasonTemplateInvalid)
	if n := len(w.objects(selfKind)); n != 0 {
		t.Errorf("%d remediations of nothing", n)
	}
	if err := w.live.Delete(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	w.template(selfKind, namespace)
	w.settle(name, "it works", phase(v1alpha1.PhaseRemediating))
	nobody := v1alpha1.TemplateReference{APIVersion: "nobody.example.com/v1", Kind: "NobodyTemplate", Namespace: namespace, Name: "x"}
	w.prefix += "-nobody"
	none := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &nobody })
	s := w.settle(none, "nobody serves it", phase(v1alpha1.PhaseDisabled))
	if !strings.Contains(s.Reason, "does not serve NobodyTemplate") {
		t.Errorf("reason %q", s.Reason)
	}
}

// An object that the API server rejects, and one whose name is taken, keep no other
// node from its remediation; a foreign object is left as it is.
func TestANodeThatFailsAlone(t *testing.T) {
	w := newWorld(t, "alone")
	a, b, c := w.node("a"), w.node("b"), w.node("c")
	ref := w.template(rebootKind, "")
	foreign := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": b}}}
	foreign.SetGroupVersionKind(rebootKind)
	foreign.SetName(b)
	if err := w.live.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.live.Delete(context.WithoutCancel(t.Context()), foreign) })
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	refuse := func(config *rest.Config, _ *Deps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/rebootnodes") && strings.Contains(body(r), `"name":"`+a+`"`) {
					return answer(r, http.StatusForbidden, "Forbidden"), nil
				}
				return next.RoundTrip(r)
			})
		})
	}
	w.start(refuse, nil)
	for _, n := range []string{a, b, c} {
		w.fall(n)
	}
	s := w.settle(name, "one is remediated and all are listed", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return len(s.UnhealthyNodes) == 3 && remediations(1)(s)
	})
	if s.UnhealthyNodes[2].Name != c || len(s.UnhealthyNodes[2].Remediations) != 1 || !strings.Contains(s.Reason, "pending") {
		t.Errorf("status %+v", s)
	}
	left := &unstructured.Unstructured{}
	left.SetGroupVersionKind(rebootKind)
	if err := w.live.Get(t.Context(), types.NamespacedName{Name: b}, left); err != nil || len(left.GetOwnerReferences()) != 0 || len(left.GetAnnotations()) != 0 {
		t.Errorf("the foreign object is %v, %v", left, err)
	}
}

// An API server that is busy for a while: nothing is made twice, nothing hangs, and a
// storm waits until all that the budget allows has begun.
func TestABusyAPIServer(t *testing.T) {
	w := newWorld(t, "busy")
	var nodes []string
	for i := range 9 {
		nodes = append(nodes, w.node(fmt.Sprint(i)))
	}
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) {
		s.RemediationTemplate, s.MinHealthy, s.StormRecoveryThreshold = &ref, new(intstr.FromInt32(4)), new(int32(1))
	})
	var refused atomic.Int32
	busy := func(config *rest.Config, _ *Deps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/rebootnodes") && refused.Add(1) <= 12 {
					return answer(r, http.StatusInternalServerError, "InternalError"), nil
				}
				return next.RoundTrip(r)
			})
		})
	}
	// All fall before the reconciler begins, so that one pass sees them.
	for _, n := range nodes[:5] {
		w.fall(n)
	}
	w.start(busy, nil)
	s := w.settle(name, "all five are remediated, in a storm", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return remediations(5)(s) && s.StormRecoveryActive != nil && *s.StormRecoveryActive
	})
	if s.StormRecoveryStartTime == nil || len(w.objects(rebootKind)) != 5 || refused.Load() < 12 {
		t.Errorf("status %+v, %d objects, %d refused", s, len(w.objects(rebootKind)), refused.Load())
	}
	w.fall(nodes[5])
	w.settle(name, "the sixth waits", func(s v1alpha1.NodeHealthCheckStatus) bool { return len(s.UnhealthyNodes) == 6 && remediations(5)(s) })
	for _, n := range nodes[:5] {
		w.heal(n)
	}
	w.settle(name, "the storm is over and the sixth is helped", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return len(s.UnhealthyNodes) == 1 && remediations(1)(s) && !*s.StormRecoveryActive
	})
}

// A lease of somebody else keeps a node; when it runs out, the node is helped.
func TestALeaseOfSomebodyElse(t *testing.T) {
	w := newWorld(t, "lease")
	a := w.node("a")
	ref := w.template(rebootKind, "")
	_, err := w.cluster.Client().CoordinationV1().Leases(w.leases).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: nodelease.Name(a)},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("fault-remediation"), LeaseDurationSeconds: new(int32(600)),
			AcquireTime: new(metav1.NewMicroTime(w.clock.Now())), RenewTime: new(metav1.NewMicroTime(w.clock.Now())),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.fall(a)
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	w.start(nil, nil)
	s := w.settle(name, "the node is listed", func(s v1alpha1.NodeHealthCheckStatus) bool { return len(s.UnhealthyNodes) == 1 })
	if len(s.UnhealthyNodes[0].Remediations) != 0 || !strings.Contains(s.Reason, "the node lease is already taken") || len(w.objects(rebootKind)) != 0 {
		t.Errorf("status %+v", s)
	}
	w.clock.step(601 * time.Second)
	w.poke(a)
	w.settle(name, "the node is remediated", phase(v1alpha1.PhaseRemediating))
	l, err := w.cluster.Client().CoordinationV1().Leases(w.leases).Get(t.Context(), nodelease.Name(a), metav1.GetOptions{})
	if err != nil || *l.Spec.HolderIdentity != "NodeHealthCheck-lease" || *l.Spec.LeaseTransitions != 1 {
		t.Errorf("lease %+v, %v", l, err)
	}
}

// A node that recovers, or is taken into quarantine, in the very last moment gets no
// remediation: the API server is asked itself, and not the cache.
func TestTheLastMoment(t *testing.T) {
	w := newWorld(t, "last")
	a, b := w.node("a"), w.node("b")
	ref := w.template(rebootKind, "")
	w.fall(a)
	w.fall(b)
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	w.start(func(_ *rest.Config, d *Deps) { d.Workers = 1 }, func(c *Reconciler) {
		first := true
		c.here = func(at string) {
			if at == "node-health-check/claimed" && first {
				first = false
				w.heal(a)
				w.heal(b)
			}
		}
	})
	w.settle(name, "both are healthy", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return s.HealthyNodes != nil && *s.HealthyNodes == 2 && len(s.UnhealthyNodes) == 0
	})
	if made := w.objects(rebootKind); len(made) != 0 {
		t.Errorf("made %v", made)
	}
	testkit.Until(t, waitTimeout, func() bool {
		leases, err := w.cluster.Client().CoordinationV1().Leases(w.leases).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(leases.Items) == 0
	})
}

// A dry run decides and reports, and touches nothing.
func TestADryRun(t *testing.T) {
	w := newWorld(t, "dry")
	a := w.node("a")
	ref := w.template(rebootKind, "")
	w.fall(a)
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	w.start(func(_ *rest.Config, d *Deps) { d.DryRun = true }, nil)
	s := w.settle(name, "the node is listed", func(s v1alpha1.NodeHealthCheckStatus) bool { return len(s.UnhealthyNodes) == 1 })
	leases, err := w.cluster.Client().CoordinationV1().Leases(w.leases).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 0 || len(w.objects(rebootKind)) != 0 || !strings.Contains(s.Reason, "dry run") {
		t.Errorf("leases %v, %v, status %+v", leases, err, s)
	}
}

// Heartbeats, which are most of what changes in a cluster, make no pass and so no
// request.
func TestHeartbeats(t *testing.T) {
	w := newWorld(t, "heart")
	a := w.node("a")
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	var passes atomic.Int32
	w.start(nil, func(c *Reconciler) {
		c.here = func(at string) {
			if at == "node-health-check/acted" {
				passes.Add(1)
			}
		}
	})
	w.settle(name, "the check works", phase(v1alpha1.PhaseEnabled))
	before := passes.Load()
	for i := range 50 {
		node := &corev1.Node{}
		if err := w.live.Get(t.Context(), types.NamespacedName{Name: a}, node); err != nil {
			t.Fatal(err)
		}
		for c := range node.Status.Conditions {
			node.Status.Conditions[c].LastHeartbeatTime = metav1.NewTime(time.Now().Add(time.Duration(i) * time.Minute))
		}
		if err := w.live.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	w.fall(a)
	w.settle(name, "the node is remediated", phase(v1alpha1.PhaseRemediating))
	if n := passes.Load() - before; n > 10 {
		t.Errorf("%d passes for 50 heartbeats and one fault", n)
	}
}

// Beside medik8s' operator the reconciler does not begin, and reports why.
func TestAnotherOperator(t *testing.T) {
	w := newWorld(t, "rival")
	namespace := w.cluster.Namespace(t)
	_, err := w.cluster.Client().CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: rivalLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("somebody"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NewMicroTime(w.clock.Now())),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cluster.Client().CoordinationV1().Leases(namespace).Delete(context.WithoutCancel(t.Context()), rivalLease, metav1.DeleteOptions{})
	})
	watch := New(w.cluster.RESTConfig(), Deps{
		Live: w.live, Claims: nodelease.Claims{Client: w.cluster.Client(), Namespace: w.leases, Clock: w.clock}, Clock: w.clock, Log: discard(),
	})
	if err := watch.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody") || !strings.Contains(err.Error(), namespace+"/"+rivalLease) {
		t.Errorf("it ended with %v", err)
	}
	w.clock.step(2 * time.Hour)
	if other, err := rival(t.Context(), w.cluster.Client(), w.clock.Now()); other != "" || err != nil {
		t.Errorf("a lease that has run out: %q, %v", other, err)
	}
}

func TestChangesOfNodesThatMatter(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat":   {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"a reason":      {func(n *corev1.Node) { n.Status.Conditions[0].Reason = "x" }, false},
		"another order": {func(n *corev1.Node) { c := n.Status.Conditions; c[0], c[1] = c[1], c[0] }, false},
		"an annotation": {func(n *corev1.Node) { n.Annotations = map[string]string{"x": ""} }, false},
		"a status":      {func(n *corev1.Node) { n.Status.Conditions[0].Status = "Unknown" }, true},
		"a transition":  {func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.Now() }, true},
		"another condition": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "X"})
		}, true},
		"one condition less":   {func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:1] }, true},
		"a label":              {func(n *corev1.Node) { n.Labels = map[string]string{"x": ""} }, true},
		"a person's word":      {func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.ConfirmedHealthyAnnotation: ""} }, true},
		"a taint":              {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }, true},
		"another machine":      {func(n *corev1.Node) { n.UID = "other" }, true},
		"capacity of a device": {func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{} }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}, {Type: "Disk", Status: "False"}}}}
			after := before.DeepCopy()
			tt.change(after)
			if got := nodeChanged(update(before, after)); got != tt.want {
				t.Errorf("matters: %t, want %t", got, tt.want)
			}
		})
	}
}
