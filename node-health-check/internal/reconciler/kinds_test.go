package reconciler

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// remediator is one that puts a finalizer on the objects of a kind, as those of medik8s
// do, and takes it off when they are asked to go; a name in fails is reported as failed.
func (w *world) remediator(ctx context.Context, fails string) {
	_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(selfKind.GroupVersion().WithKind(selfKind.Kind + "List"))
		if w.live.List(ctx, list) == nil {
			for i := range list.Items {
				w.attend(ctx, &list.Items[i], fails)
			}
		}
		return false, nil // until the test ends
	})
}

// attend does one thing for one object.
func (w *world) attend(ctx context.Context, o *unstructured.Unstructured, fails string) {
	deleting, held := o.GetDeletionTimestamp() != nil, slices.Contains(o.GetFinalizers(), finalizer)
	patch := ""
	switch {
	case !strings.HasPrefix(o.GetName(), w.prefix+"-"):
	case deleting && held:
		patch = `{"metadata":{"finalizers":null}}`
	case !deleting && !held:
		patch = `{"metadata":{"finalizers":["` + finalizer + `"]}}`
	case !deleting && condition(o, v1alpha1.ConditionSucceeded) == "" && o.GetAnnotations()[v1alpha1.TemplateNameAnnotation] == fails:
		failed := `{"status":{"conditions":[{"type":"Succeeded","status":"False","reason":"Played","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`
		_ = w.live.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(failed)))
	}
	if patch != "" {
		_ = w.live.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

// Two steps of one kind: disabled, until both templates state that their remediator supports
// several. Then the first fails, the second follows, and both go with their finalizers
// when the node recovers.
func TestStepsOfOneKind(t *testing.T) {
	w := newWorld(t, "kind")
	a := w.node("a")
	namespace := w.cluster.Namespace(t)
	first := w.template(selfKind, namespace)
	w.prefix = "kind-second"
	second := w.template(selfKind, namespace)
	w.prefix = "kind"
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) {
		s.EscalatingRemediations = []v1alpha1.EscalatingRemediation{
			{RemediationTemplate: first, Order: 1, Timeout: metav1.Duration{Duration: time.Hour}},
			{RemediationTemplate: second, Order: 2, Timeout: metav1.Duration{Duration: time.Hour}},
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.remediator(ctx, first.Name) }()
	defer func() { cancel(); <-done }()
	w.start(nil, nil)
	w.fall(a)
	s := w.settle(name, "it is disabled", phase(v1alpha1.PhaseDisabled))
	if c := s.Conditions[0]; c.Reason != v1alpha1.ReasonTemplateInvalid || !strings.Contains(c.Message, v1alpha1.MultipleTemplatesAnnotation) {
		t.Errorf("condition %+v", c)
	}
	if made := w.objects(selfKind); len(made) != 0 {
		t.Fatalf("made %v", made)
	}
	for _, ref := range []v1alpha1.TemplateReference{first, second} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(templateKind(ref))
		o.SetNamespace(namespace)
		o.SetName(ref.Name)
		patch := `{"metadata":{"annotations":{"` + v1alpha1.MultipleTemplatesAnnotation + `":"true"}}}`
		if err := w.live.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	s = w.settle(name, "both are tried", remediations(2))
	if tried := s.UnhealthyNodes[0].Remediations; tried[0].TemplateName != first.Name || tried[0].TimedOut == nil || tried[1].TemplateName != second.Name || tried[1].TimedOut != nil {
		t.Errorf("tried %+v", tried)
	}
	w.heal(a)
	w.settle(name, "nothing is left", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return s.Phase == v1alpha1.PhaseEnabled && len(s.UnhealthyNodes) == 0 && len(w.objects(selfKind)) == 0
	})
}

// A remediator that gives get on its templates, and neither list nor watch: the check is
// disabled and reports which right is missing.
func TestTemplatesThatMayNotBeListed(t *testing.T) {
	w := newWorld(t, "unlisted")
	a := w.node("a")
	ref := w.template(selfKind, w.cluster.Namespace(t))
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	var refuses atomic.Bool
	refuses.Store(true)
	w.start(func(config *rest.Config, _ *Deps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if refuses.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/selfnoderemediationtemplates") {
					return answer(r, http.StatusForbidden, string(metav1.StatusReasonForbidden)), nil
				}
				return next.RoundTrip(r)
			})
		})
	}, nil)
	s := w.settle(name, "it is disabled", phase(v1alpha1.PhaseDisabled))
	if c := s.Conditions[0]; c.Reason != v1alpha1.ReasonTemplateNotFound || !strings.Contains(c.Message, "SelfNodeRemediationTemplate") {
		t.Errorf("condition %+v", c)
	}
	refuses.Store(false)
	w.poke(a)
	w.settle(name, "it works", phase(v1alpha1.PhaseEnabled))
}
