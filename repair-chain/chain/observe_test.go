package chain

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// TestObserve: people see values of the step's own object, from the paths that the template
// gives; a value that cannot be read changes nothing.
func TestObserve(t *testing.T) {
	single, elsewhere := healthrule.Single("Ready"), healthrule.Single("Ready")
	elsewhere.ObservedGenerationPath = ".status.seen"
	object := func(uid string, status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": uid}, "status": status}}
	}
	ready := map[string]any{"observedGeneration": int64(3), "seen": float64(2), "conditions": []any{map[string]any{"type": "Ready", "status": "True", "message": "up"}}}
	healthy := v1alpha1.HealthTrace{State: "Healthy", Reason: "ReadyCondition", Message: "up"}
	for name, tc := range map[string]struct {
		template *Template
		live     *unstructured.Unstructured
		observed int64
		health   v1alpha1.HealthTrace
	}{
		"without rules":           {&Template{}, object("uid", ready), 3, v1alpha1.HealthTrace{}},
		"with a path":             {&Template{Rule: &elsewhere}, object("uid", ready), 2, v1alpha1.HealthTrace{}},
		"with a rule for people":  {&Template{Display: &single}, object("uid", ready), 3, healthy},
		"no generation":           {&Template{Display: &single}, object("uid", map[string]any{}), 1, v1alpha1.HealthTrace{State: "Unknown", Reason: "ReadyCondition", Message: "condition with type [Ready] not found on resource status"}},
		"half a generation":       {&Template{}, object("uid", map[string]any{"observedGeneration": 1.5}), 1, v1alpha1.HealthTrace{}},
		"a text as a generation":  {&Template{}, object("uid", map[string]any{"observedGeneration": "4"}), 1, v1alpha1.HealthTrace{}},
		"somebody else's object":  {&Template{Display: &single}, object("other", ready), 1, v1alpha1.HealthTrace{}},
		"an object that is gone":  {&Template{Display: &single}, nil, 1, v1alpha1.HealthTrace{}},
		"a generation of nothing": {&Template{Rule: &elsewhere}, object("uid", map[string]any{"observedGeneration": int64(9)}), 1, v1alpha1.HealthTrace{}},
	} {
		run := &v1alpha1.RepairRun{Status: v1alpha1.RepairRunStatus{Steps: []v1alpha1.StepStatus{{Object: &v1alpha1.ObjectTrace{UID: "uid", ObservedGeneration: 1}}}}}
		Observe(run, 0, tc.template, artifact.Decision{Live: tc.live})
		st, health := run.Status.Steps[0], v1alpha1.HealthTrace{}
		if st.Health != nil {
			health = *st.Health
		}
		if st.Object.ObservedGeneration != tc.observed || health != tc.health {
			t.Errorf("%s: generation %d, health %+v; want %d, %+v", name, st.Object.ObservedGeneration, health, tc.observed, tc.health)
		}
	}
}

// TestRunKeepsObservedObjects: the generation stays when the object is written again, and is
// that of no other object.
func TestRunKeepsObservedObjects(t *testing.T) {
	_, run := chainOf(t, v1alpha1.Step{Name: "one"})
	run.Status.Steps[0].Object = &v1alpha1.ObjectTrace{UID: "uid", ObservedGeneration: 7}
	for uid, want := range map[string]int64{"uid": 7, "other": 0} {
		kept := run.DeepCopy()
		p := artifact.Progress{Slot: artifact.Slot{UID: uid}}
		if err := Keep(kept, 0, &Turn{Template: &Template{}}, p, noon); err != nil {
			t.Fatal(err)
		}
		if got := kept.Status.Steps[0].Object.ObservedGeneration; got != want {
			t.Errorf("of %s: %d, want %d", uid, got, want)
		}
	}
}
