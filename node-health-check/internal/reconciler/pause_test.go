package reconciler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// A pause while a remediation is under way, past its time and after its failure: the
// remediator is not asked to stop; when the pause ends, the next step follows.
func TestAPauseTouchesNoRemediation(t *testing.T) {
	w := newWorld(t, "pause")
	a, b := w.node("a"), w.node("b")
	first, second := w.template(rebootKind, ""), w.template(selfKind, w.cluster.Namespace(t))
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) {
		s.EscalatingRemediations = []v1alpha1.EscalatingRemediation{
			{RemediationTemplate: first, Order: 1, Timeout: metav1.Duration{Duration: time.Minute}},
			{RemediationTemplate: second, Order: 2, Timeout: metav1.Duration{Duration: time.Hour}},
		}
	})
	w.start(nil, nil)
	w.fall(a)
	w.fall(b)
	w.settle(name, "both are remediated", remediations(2))
	before := w.objects(rebootKind)
	for _, o := range before {
		w.works(o.GetName())
	}
	w.pause(name, `["upgrade"]`)
	w.settle(name, "it is paused", phase(v1alpha1.PhasePaused))
	w.report(&before[0], v1alpha1.ConditionSucceeded, metav1.ConditionFalse)
	w.clock.step(2 * time.Minute)
	passes := w.passes(name, a)
	for _, o := range w.objects(rebootKind) {
		if _, reported := o.GetAnnotations()[v1alpha1.TimedOutAnnotation]; reported || o.GetDeletionTimestamp() != nil {
			t.Errorf("%s was told to stop under a pause: %v", o.GetName(), o.GetAnnotations())
		}
	}
	for _, u := range passes.UnhealthyNodes {
		for _, r := range u.Remediations {
			if r.TimedOut != nil {
				t.Errorf("%s is recorded as given up", r.Resource.Name)
			}
		}
	}
	if n := len(w.objects(selfKind)); n != 0 {
		t.Errorf("%d remediations of the next step under a pause", n)
	}
	w.pause(name, `null`)
	w.settle(name, "the next step of both follows", remediations(4))
	for _, o := range w.objects(rebootKind) {
		if _, reported := o.GetAnnotations()[v1alpha1.TimedOutAnnotation]; !reported {
			t.Errorf("%s was not told to stop after the pause", o.GetName())
		}
	}
}

// passes is the status after a pass that begins after now: it counts one node more.
func (w *world) passes(name, node string) v1alpha1.NodeHealthCheckStatus {
	w.t.Helper()
	before := w.status(name).ObservedNodes
	w.node("extra")
	w.poke(node)
	return w.settle(name, "a pass counts one node more", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return *s.ObservedNodes == *before+1
	})
}
