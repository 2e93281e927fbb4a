package chain

import (
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
)

const examples = "../../examples/repair-chains/"

// template reads the RepairTemplate of an example.
func template(t *testing.T, file string) *v1alpha1.RepairTemplate {
	t.Helper()
	text, err := os.ReadFile(examples + file)
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := yaml.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	out := &v1alpha1.RepairTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSeed has the seed's templates, in our kind, with each state of an object that it
// shows, and what may be done with the object then.
func TestSeed(t *testing.T) {
	for name, x := range map[string]struct {
		file, object string
		read, update bool
	}{
		"Ready is True":              {"single-condition.yaml", `{metadata: {generation: 5}, status: {observedGeneration: 5, conditions: [{type: Ready, status: "True"}]}}`, true, true},
		"Ready is False":             {"single-condition.yaml", `{metadata: {generation: 8}, status: {observedGeneration: 8, conditions: [{type: Ready, status: "False"}]}}`, false, true},
		"Ready is Unknown":           {"single-condition.yaml", `{metadata: {generation: 3}, status: {observedGeneration: 3, conditions: [{type: Ready, status: "Unknown"}]}}`, false, false},
		"an older generation":        {"single-condition.yaml", `{metadata: {generation: 4}, status: {observedGeneration: 3, conditions: [{type: Ready, status: "True"}]}}`, false, false},
		"healthy is satisfied":       {"multi-match.yaml", `{metadata: {generation: 4}, status: {observedGeneration: 4, conditions: [{type: ReconcileSucceeded, status: "True"}]}}`, true, true},
		"unhealthy is satisfied":     {"multi-match.yaml", `{metadata: {generation: 6}, status: {observedGeneration: 6, conditions: [{type: ReconcileFailed, status: "True"}]}}`, false, true},
		"neither is satisfied":       {"multi-match.yaml", `{metadata: {generation: 6}, status: {observedGeneration: 6}}`, false, false},
		"satisfied, and older":       {"multi-match.yaml", `{metadata: {generation: 7}, status: {observedGeneration: 6, conditions: [{type: ReconcileFailed, status: "True"}]}}`, false, false},
		"without observedGeneration": {"without-observed-generation.yaml", `{metadata: {generation: 5}, status: {conditions: [{type: Ready, status: "True"}]}}`, true, true},
		"a ConfigMap":                {"always-healthy.yaml", `{metadata: {}, data: {a: b}}`, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			compiled, err := CompileTemplate(template(t, x.file))
			if err != nil {
				t.Fatal(err)
			}
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(x.object), &o.Object); err != nil {
				t.Fatal(err)
			}
			o.SetGroupVersionKind(compiled.GVK)
			o.SetUID("uid")
			applied, err := artifact.Definition{Digest: "sha256:before"}.As(o)
			if err != nil {
				t.Fatal(err)
			}
			d, err := artifact.Decide(artifact.Facts{
				Slot:      artifact.Slot{ID: "slot", UID: "uid", Applied: &applied},
				Lifecycle: compiled.Lifecycle, Rule: compiled.Rule, Wanted: artifact.Definition{Digest: "sha256:newest"}, Live: o, Now: time.Unix(0, 0),
			})
			if err != nil || d.Read != x.read || (d.Do == artifact.Intend) != x.update {
				t.Errorf("read %v, want %v; %s, update %v: %+v, %v", d.Read, x.read, d.Do, x.update, d.Health, err)
			}
		})
	}
}

// TestObjectName: names fit what Kubernetes makes labels of, and differ.
func TestObjectName(t *testing.T) {
	run := &v1alpha1.RepairRun{Spec: v1alpha1.RepairRunSpec{NodeName: strings.Repeat("a", 53) + "." + strings.Repeat("b", 100)}}
	run.UID = "u"
	one, two := ObjectName(run, "one"), ObjectName(run, "two")
	if len(one) > 63 || one == two || strings.Contains(one, ".-") {
		t.Errorf("%q, %q", one, two)
	}
	run.Spec.NodeName = strings.Repeat("-", 70) // not a node's, and no reason to stop
	if name := ObjectName(run, "one"); len(name) != 9 {
		t.Errorf("of a node that is named by nothing: %q", name)
	}
}

// TestAnObjectIsBounded: what was written last is kept in the run.
func TestAnObjectIsBounded(t *testing.T) {
	x := &v1alpha1.RepairTemplate{Spec: v1alpha1.RepairTemplateSpec{Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"{{ .Inputs.a }}"}}`)}}}
	compiled, err := CompileTemplate(x)
	if err != nil {
		t.Fatal(err)
	}
	run := &v1alpha1.RepairRun{Spec: v1alpha1.RepairRunSpec{NodeName: "gpu-1"}}
	render := func(bytes int) (artifact.Definition, error) {
		return compiled.Render(run, "one", map[string]any{"a": strings.Repeat("x", bytes)})
	}
	empty, err := render(0)
	if err != nil {
		t.Fatal(err)
	}
	capacity := 16<<10 - len(empty.Submitted)
	if full, err := render(capacity); err != nil || len(full.Submitted) != 16<<10 {
		t.Errorf("an object of the largest size: %d bytes, %v", len(full.Submitted), err)
	}
	_, err = render(capacity + 1)
	expect(t, "a byte more", err, "renders an object of 16385 bytes, the limit is 16384")
}

// TestARebootActsOnce: a template of a RebootNode cannot be mutable.
func TestARebootActsOnce(t *testing.T) {
	x := &v1alpha1.RepairTemplate{Spec: v1alpha1.RepairTemplateSpec{
		Lifecycle: v1alpha1.Mutable, Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"janitor.dgxc.nvidia.com/v1alpha1","kind":"RebootNode"}`)},
	}}
	if _, err := CompileTemplate(x); err == nil || !strings.Contains(err.Error(), "spec.lifecycle: must not be mutable, because a RebootNode acts once") {
		t.Errorf("a mutable reboot: %v", err)
	}
}
