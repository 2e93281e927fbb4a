package chain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// chainOf is a chain of steps, and a run of it on gpu-1 that has just begun.
func chainOf(t *testing.T, steps ...v1alpha1.Step) (*Chain, *v1alpha1.RepairRun) {
	t.Helper()
	spec := v1alpha1.RepairChainSpec{Steps: steps}
	c, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	run := &v1alpha1.RepairRun{
		ObjectMeta: metav1.ObjectMeta{Name: "run", UID: "uid"},
		Spec:       v1alpha1.RepairRunSpec{NodeName: "gpu-1", Fault: v1alpha1.Fault{Action: "RESTART_VM", Message: "fell off the bus"}},
		Status:     Begin("gpu-1", spec),
	}
	return c, run
}

// templateOf compiles a template of this object, in JSON.
func templateOf(t *testing.T, name, object string) *Template {
	t.Helper()
	x := &v1alpha1.RepairTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	x.Spec.Template = runtime.RawExtension{Raw: []byte(object)}
	compiled, err := CompileTemplate(x)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// expect fails the test unless an error has these words; empty is no error.
func expect(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// endless takes more than costLimit units of CEL.
var endless = strings.Repeat("[1,2,3,4,5,6,7,8,9,10].all(x, ", 6) + "true" + strings.Repeat(")", 6)

// TestDue: a step whose condition is neither true nor false is not due.
func TestDue(t *testing.T) {
	for when, tc := range map[string]struct {
		due     bool
		problem string
	}{
		"":                                    {due: true},
		"action == 'RESTART_VM'":              {due: true},
		"action == 'REPLACE_VM'":              {},
		"fault.message == 'fell off the bus'": {due: true},
		"fault.metadata.x == 'y'":             {problem: "when: no such key: metadata"},
		"fault.message":                       {problem: "when: is fell off the bus, not true or false"},
		endless:                               {problem: "when: operation cancelled: actual cost limit exceeded"},
	} {
		c, run := chainOf(t, v1alpha1.Step{Name: "one", When: when})
		vars, err := variables(run)
		if err != nil {
			t.Fatal(err)
		}
		due, err := c.Steps[0].due(vars)
		if expect(t, when, err, tc.problem); due != tc.due {
			t.Errorf("%q: due %t, want %t", when, due, tc.due)
		}
	}
}

// TestInputsAreJSONValues: an expression that gives anything else has the step fail,
// by the input's name.
func TestInputsAreJSONValues(t *testing.T) {
	for expression, tc := range map[string]struct{ want, problem string }{
		"node + '-' + steps.one":      {want: "gpu-1-Waiting"},
		"[1, 2.5, null, {'a': true}]": {want: "[1 2.5 <nil> map[a:true]]"},
		"outputs.one.result":          {problem: "input a: no such key: one"},
		"type(node)":                  {problem: "input a: type conversion not supported for 'type'"},
		"0.0 / 0.0":                   {problem: "invalid NaN value"},
	} {
		c, run := chainOf(t, v1alpha1.Step{Name: "one", Inputs: []v1alpha1.Input{{Name: "a", Value: expression}}})
		vars, err := variables(run)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Steps[0].values(vars)
		expect(t, expression, err, tc.problem)
		if tc.problem == "" && fmt.Sprint(got["a"]) != tc.want {
			t.Errorf("%s: %v, want %s", expression, got["a"], tc.want)
		}
	}
}

// TestStepWithoutTemplate: what is under way goes on as it was made, what has not begun
// fails, with the reason.
func TestStepWithoutTemplate(t *testing.T) {
	unset := templateOf(t, "make", `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"{{ .Inputs.nothing }}"}}`)
	works := templateOf(t, "make", `{"apiVersion":"v1","kind":"ConfigMap"}`)
	for name, tc := range map[string]struct {
		template    *Template
		unreadable  bool // is an output of the step before
		state, then v1alpha1.StepState
		reason      string
		turn, ahead bool
	}{
		"not begun":                        {unset, false, v1alpha1.StepWaiting, v1alpha1.StepFailed, ReasonRender, false, true},
		"under way":                        {unset, false, v1alpha1.StepRunning, v1alpha1.StepRunning, "", true, false},
		"as only a newer version has":      {works, false, "Paused", "Paused", "", false, false},
		"done, and looked after":           {unset, false, v1alpha1.StepDone, v1alpha1.StepDone, "", true, true},
		"of what can't be read, not begun": {works, true, v1alpha1.StepWaiting, v1alpha1.StepFailed, ReasonExpression, false, true},
		"of what can't be read, under way": {works, true, v1alpha1.StepRunning, v1alpha1.StepRunning, "", true, false},
		"of what can't be read, done":      {works, true, v1alpha1.StepDone, v1alpha1.StepDone, "", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, run := chainOf(t, v1alpha1.Step{Name: "one", Template: "x"}, v1alpha1.Step{Name: "two", Template: "make"})
			tc.template.Lifecycle = artifact.Mutable
			run.Status.Steps[0].State, run.Status.Steps[1].State = v1alpha1.StepDone, tc.state
			if tc.unreadable {
				run.Status.Steps[0].Outputs = []v1alpha1.OutputTrace{{Name: "result", Value: "{"}}
			}
			facts := Facts{Templates: map[string]*Template{"make": tc.template}, Now: noon}
			if tc.state != v1alpha1.StepWaiting {
				facts.Pause = "on" // of which a step that waits would not get this far
			}
			turn, ahead := c.Consider(run, 1, facts)
			if (turn != nil) != tc.turn || ahead != tc.ahead {
				t.Fatalf("turn %+v, ahead %t", turn, ahead)
			}
			if turn != nil && (turn.Template != tc.template || turn.Wanted.Digest != "" || turn.Blocker.Reason != ReasonPaused) {
				t.Errorf("it goes on as %+v", turn)
			}
			st := run.Status.Steps[1]
			if st.State != tc.then || st.Reason != tc.reason {
				t.Errorf("then it is %s, %s: %s", st.State, st.Reason, st.Message)
			}
			if tc.reason == ReasonExpression && !strings.Contains(st.Message, "reading output result of step one") {
				t.Errorf("it says %s", st.Message)
			}
		})
	}
}

// TestTemplateRequirements: an error names the invalid field.
func TestTemplateRequirements(t *testing.T) {
	for object, want := range map[string]string{
		`{"apiVersion":"v1","kind":"ConfigMap"}`: "",
		`{"kind":"ConfigMap"}`:                   "spec.template: apiVersion and kind are required",
		`{"apiVersion":"v1"}`:                    "spec.template: apiVersion and kind are required",
		`{}`:                                     "spec.template: apiVersion and kind are required",
		`{"apiVersion":`:                         "spec.template: unexpected end of JSON input",
		`[]`:                                     "spec.template: json: cannot unmarshal array",
	} {
		x := &v1alpha1.RepairTemplate{}
		x.Spec.Template.Raw = []byte(object)
		_, err := CompileTemplate(x)
		expect(t, object, err, want)
	}
}

// TestATemplateMakesItsOwnKind: an object of any other is not looked for, and would be
// nobody's.
func TestATemplateMakesItsOwnKind(t *testing.T) {
	x := templateOf(t, "any", `{"apiVersion":"v1","kind":"{{ .Inputs.kind }}"}`)
	_, run := chainOf(t, v1alpha1.Step{Name: "one"})
	_, err := x.Render(run, "one", map[string]any{"kind": "Pod"})
	expect(t, "another kind", err, "template any: renders a /v1, Kind=Pod, not a /v1, Kind={{ .Inputs.kind }}")
}

// TestAMessageIsBounded, and stays text.
func TestAMessageIsBounded(t *testing.T) {
	for _, text := range []string{"x" + strings.Repeat("é", maxMessage), strings.Repeat("x", maxMessage)} {
		st := &v1alpha1.StepStatus{}
		wait(st, "Reason", text)
		if len(st.Message) > maxMessage || len(st.Message) < maxMessage-1 || !strings.HasPrefix(text, st.Message) {
			t.Errorf("a message of %d bytes is kept with %d", len(text), len(st.Message))
		}
	}
}

// TestLeased: a run takes the lease of its node itself, unless its maker holds it already.
func TestLeased(t *testing.T) {
	ours := map[string]string{remediation.ManagedByLabel: remediation.ManagedBy}
	of := map[string]string{remediation.RecordAnnotation: "r1"}
	check := []metav1.OwnerReference{{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "workers"}}
	for name, tc := range map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"a person's":                 {metav1.ObjectMeta{}, false},
		"fault-remediation's":        {metav1.ObjectMeta{Labels: ours, Annotations: of}, true},
		"a NodeHealthCheck's":        {metav1.ObjectMeta{OwnerReferences: check}, true},
		"with the label alone":       {metav1.ObjectMeta{Labels: ours}, false},
		"with the annotation alone":  {metav1.ObjectMeta{Annotations: of}, false},
		"with somebody else's label": {metav1.ObjectMeta{Labels: map[string]string{remediation.ManagedByLabel: "helm"}, Annotations: of}, false},
	} {
		if got := Leased(&v1alpha1.RepairRun{ObjectMeta: tc.meta}); got != tc.want {
			t.Errorf("a run %s: leased %t, want %t", name, got, tc.want)
		}
	}
}

// TestUntouched: a run whose steps all wait has done nothing to its node.
func TestUntouched(t *testing.T) {
	steps := []v1alpha1.Step{{Name: "one"}, {Name: "two"}}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.StepStatus)
		want   bool
	}{
		"it waits":         {func(*v1alpha1.StepStatus) {}, true},
		"a step runs":      {func(st *v1alpha1.StepStatus) { st.State = v1alpha1.StepRunning }, false},
		"a step is over":   {func(st *v1alpha1.StepStatus) { st.State = v1alpha1.StepDone }, false},
		"an object may be": {func(st *v1alpha1.StepStatus) { st.Object = &v1alpha1.ObjectTrace{Name: "o"} }, false},
	} {
		_, run := chainOf(t, steps...)
		tc.change(&run.Status.Steps[1])
		if got := Untouched(run); got != tc.want {
			t.Errorf("%s: untouched %t, want %t", name, got, tc.want)
		}
	}
}
