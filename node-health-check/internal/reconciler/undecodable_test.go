package reconciler

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

const definition = charts + "manifests/crds/remediation.medik8s.io_nodehealthchecks.yaml"

// withoutRules drops what another definition of the kind does not have: every rule, bound
// and format.
func withoutRules(x any) any {
	switch node := x.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range node {
			switch key {
			case "x-kubernetes-validations", "pattern", "format", "minimum", "maxLength", "minLength":
				if _, field := value.(map[string]any); !field {
					continue
				}
			}
			out[key] = withoutRules(value)
		}
		return out
	case []any:
		out := make([]any, len(node))
		for i := range node {
			out[i] = withoutRules(node[i])
		}
		return out
	default:
		return x
	}
}

// ofOthers replaces the definition of the kind by one without rules until the test ends.
func (w *world) ofOthers() {
	w.t.Helper()
	text, err := os.ReadFile(definition)
	if err != nil {
		w.t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		w.t.Fatal(err)
	}
	bare, err := json.Marshal(withoutRules(object))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.cluster.Apply(context.WithoutCancel(w.t.Context()), bytes.NewReader(text)); err != nil {
			w.t.Error(err)
		}
	})
	if err := w.cluster.Apply(w.t.Context(), bytes.NewReader(bare)); err != nil {
		w.t.Fatal(err)
	}
}

// poisons are fields that a definition of others takes, or an API server before the
// rules were there, and the field that a report names.
var poisons = map[string]struct{ spec, status, field string }{
	"duration":     {spec: `{"unhealthyConditions":[{"type":"Disk","status":"True","duration":"1m"},{"type":"Ready","status":"False","duration":"9999999999h"}]}`, field: "spec.unhealthyConditions[1]"},
	"delay":        {spec: `{"healthyDelay":"9999999999h"}`, field: "spec.healthyDelay"},
	"minhealthy":   {spec: `{"minHealthy":3000000000}`, field: "spec.minHealthy"},
	"maxunhealthy": {spec: `{"minHealthy":null,"maxUnhealthy":3000000000}`, field: "spec.maxUnhealthy"},
	"threshold":    {spec: `{"stormRecoveryThreshold":3000000000}`, field: "spec.stormRecoveryThreshold"},
	"order":        {spec: `{"remediationTemplate":null,"escalatingRemediations":[{"remediationTemplate":{"apiVersion":"a.b/v1","kind":"FixTemplate","name":"x"},"order":3000000000,"timeout":"60s"}]}`, field: "spec.escalatingRemediations[0]"},
	"timeout":      {spec: `{"remediationTemplate":null,"escalatingRemediations":[{"remediationTemplate":{"apiVersion":"a.b/v1","kind":"FixTemplate","name":"x"},"order":1,"timeout":"9999999999h"}]}`, field: "spec.escalatingRemediations[0]"},
	"started":      {status: `{"unhealthyNodes":[{"name":"n","remediations":[{"resource":{"name":"n"},"started":"2026-01-02t03:04:05z"}]}]}`, field: "status.unhealthyNodes[0]"},
	"condition":    {status: `{"conditions":[{"type":"Other","status":"True","reason":"X","message":"","lastTransitionTime":"2026-01-02t03:04:05z"}]}`, field: "status.conditions[0]"},
}

// poison makes a check with a field that can not be decoded.
func (w *world) poison(kind string) string {
	w.t.Helper()
	p, o := poisons[kind], rawCheck()
	o.Object["spec"] = merged(w.t, `{"selector":{"matchLabels":{"pool":"none"}},"minHealthy":"51%",
		"remediationTemplate":{"apiVersion":"a.b/v1","kind":"FixTemplate","name":"fix"}}`, p.spec)
	o.SetName(w.prefix + "-" + kind)
	if err := w.live.Create(w.t.Context(), o); err != nil {
		w.t.Fatalf("%s: %v", kind, err)
	}
	w.t.Cleanup(func() { _ = w.live.Delete(context.WithoutCancel(w.t.Context()), o) })
	if p.status != "" {
		if err := w.live.Status().Patch(w.t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":`+p.status+`}`))); err != nil {
			w.t.Fatalf("%s: %v", kind, err)
		}
	}
	return o.GetName()
}

// merged is a JSON object with the fields of another over its own; null drops one.
func merged(t *testing.T, texts ...string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, text := range texts {
		if text == "" {
			continue
		}
		part := &unstructured.Unstructured{}
		if err := part.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"X","x":` + text + `}`)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		fields, _, _ := unstructured.NestedMap(part.Object, "x")
		for key, value := range fields {
			if out[key] = value; value == nil {
				delete(out, key)
			}
		}
	}
	return out
}

// raw is a check as it is stored.
func (w *world) raw(name string) *unstructured.Unstructured {
	w.t.Helper()
	o := rawCheck()
	if err := w.live.Get(w.t.Context(), types.NamespacedName{Name: name}, o); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return o
}

// waitUndecodable waits until every undecodable check is reported: in its status, in an Event
// and in the metric.
func (w *world) waitUndecodable() {
	w.t.Helper()
	for kind, p := range poisons {
		name := w.prefix + "-" + kind
		testkit.Until(w.t, waitTimeout, func() bool {
			o := w.raw(name)
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			reason, _, _ := unstructured.NestedString(o.Object, "status", "reason")
			return phase == string(v1alpha1.PhaseDisabled) && strings.Contains(reason, v1alpha1.ReasonSpecInvalid+": "+p.field+": ")
		})
		testkit.Until(w.t, waitTimeout, func() bool {
			events := w.eventsOf(name)
			return len(events) > 0 && events[0].Type == corev1.EventTypeWarning && strings.Contains(events[0].Message, p.field)
		})
		if got := testutil.ToFloat64(w.watch.deps.Metrics.undecodable.WithLabelValues(name)); got != 1 {
			w.t.Errorf("%s: nvsentinel_node_health_check_undecodable is %v", kind, got)
		}
	}
}

// eventsOf are the Events on a check.
func (w *world) eventsOf(name string) []corev1.Event {
	w.t.Helper()
	list, err := w.cluster.Client().CoreV1().Events("default").List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// pause sets the requests of a check to pause.
func (w *world) pause(name, requests string) {
	w.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"pauseRequests":`+requests+`}}`))
	if err := w.live.Patch(w.t.Context(), &v1alpha1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch); err != nil {
		w.t.Fatal(err)
	}
}

// One check with a field that cannot be decoded, of every kind of field, beside a good one:
// the bad check is reported, and the good one works as before, after a restart as well.
func TestAnUndecodableCheckStopsNoOther(t *testing.T) {
	w := newWorld(t, "poison")
	w.ofOthers()
	a := w.node("a")
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	for kind := range poisons {
		w.poison(kind)
	}
	stop := w.start(nil, nil)
	w.settle(name, "the good check works", phase(v1alpha1.PhaseEnabled))
	w.waitUndecodable()
	if ok, why := w.watch.Synced(); !ok {
		t.Errorf("it is not ready: %s", why)
	}
	w.pause(name, `["upgrade"]`)
	w.settle(name, "a pause is seen", phase(v1alpha1.PhasePaused))
	stop()
	w.pause(name, `null`)
	w.fall(a)
	w.start(nil, nil)
	w.settle(name, "the node is remediated after a restart", remediations(1))
	w.waitUndecodable()
	if ok, why := w.watch.Synced(); !ok {
		t.Errorf("after a restart it is not ready: %s", why)
	}
	for kind, patch := range map[string]string{"minhealthy": `{"spec":{"minHealthy":1}}`, "duration": `{"spec":{"unhealthyConditions":null}}`} {
		o := rawCheck()
		o.SetName(w.prefix + "-" + kind)
		if err := w.live.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		w.settle(o.GetName(), "the corrected check is worked on", func(s v1alpha1.NodeHealthCheckStatus) bool {
			return len(s.Conditions) == 1 && s.Conditions[0].Reason == v1alpha1.ReasonTemplateNotFound
		})
	}
}

// A check that can not be decoded, and has remediations of control-plane nodes, still
// keeps others off the control plane.
func TestReferencesOfAnUndecodableCheck(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": merged(t, poisons["order"].spec,
		`{"remediationTemplate":{"apiVersion":"c.d/v2","kind":"MendTemplate","namespace":"ns","name":"y"},"minHealthy":3000000000}`)}}
	if _, err := decode(o); err == nil {
		t.Error("it can be decoded")
	}
	got := rawReferences(o)
	if len(got) != 2 || got[0] != (v1alpha1.TemplateReference{APIVersion: "c.d/v2", Kind: "MendTemplate", Namespace: "ns", Name: "y"}) || got[1].Kind != "FixTemplate" {
		t.Errorf("references %+v", got)
	}
	for _, spec := range []any{nil, "text", map[string]any{"remediationTemplate": "text", "escalatingRemediations": []any{"text", map[string]any{}}}} {
		if got := rawReferences(&unstructured.Unstructured{Object: map[string]any{"spec": spec}}); len(got) != 0 {
			t.Errorf("references of %v: %+v", spec, got)
		}
	}
}
