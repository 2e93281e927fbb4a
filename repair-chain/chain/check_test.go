package chain

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
)

// checked compiles and checks a template of this object, in JSON, with outputs.
func checked(t *testing.T, name, object string, outputs ...string) *Template {
	t.Helper()
	x := templateOf(t, name, object)
	for _, o := range outputs {
		x.Paths[o] = ".status." + o
	}
	if warnings, err := x.Check(); err != nil || len(warnings) > 0 {
		t.Fatalf("template %s: %v, %v", name, warnings, err)
	}
	return x
}

// TestCheckOfAChain: what an expression names that there is not, by field and step, with
// what there is.
func TestCheckOfAChain(t *testing.T) {
	templates := map[string]*Template{
		"reboot":   checked(t, "reboot", `{"apiVersion":"example.com/v1","kind":"Reboot","spec":{"nodeName":"{{ .NodeName }}"}}`, "boot"),
		"validate": checked(t, "validate", `{"apiVersion":"example.com/v1","kind":"Validation","spec":{"boot":"{{ .Inputs.boot }}"}}`),
	}
	input := func(name, value string) []v1alpha1.Input { return []v1alpha1.Input{{Name: name, Value: value}} }
	for _, tc := range []struct {
		name       string
		last       v1alpha1.Step // behind reset and validate-again
		succeedsIf string
		want       string
	}{
		{"all is there", v1alpha1.Step{When: "steps.reset == 'Failed' || steps['validate-again'] != 'Done'", Template: "validate", Inputs: input("boot", "outputs.reset.boot")}, "steps.last == 'Done'", ""},
		{"other forms", v1alpha1.Step{When: "has(outputs.reset) && steps.?reset.orValue('') in ['Done', 'Failed'] && messages[?'validate-again'].hasValue()", Template: "validate", Inputs: input("boot", "outputs.?reset.boot.orValue('')")}, "", ""},
		{"all at once", v1alpha1.Step{When: "steps.exists(s, steps[s] == 'failed')", Template: "validate", Inputs: input("boot", "steps")}, "", ""},
		{"lower case on purpose", v1alpha1.Step{When: "steps.reset.lowerAscii() == 'failed'"}, "", ""},
		{"another text", v1alpha1.Step{When: "steps.reset == 'Done' && node == 'failed'"}, "", ""},
		{"no such step", v1alpha1.Step{When: "steps.rest == 'Failed'"}, "", "spec.steps[2].when: step last: steps.rest: step rest does not exist, the earlier steps are reset, validate-again"},
		{"no such step, in brackets", v1alpha1.Step{When: "steps['validate_again'] == 'Failed'"}, "", "steps.validate_again: step validate_again does not exist, the earlier steps are reset, validate-again"},
		{"no such step, asked for", v1alpha1.Step{When: "has(steps.rest)"}, "", "steps.rest: step rest does not exist"},
		{"no message of such a step", v1alpha1.Step{When: "messages.rest == ''"}, "", "messages.rest: step rest does not exist"},
		{"no outputs of such a step", v1alpha1.Step{When: "outputs.rest.boot == ''"}, "", "outputs.rest.boot: step rest does not exist"},
		{"the wrong case", v1alpha1.Step{When: "steps.reset == 'failed'"}, "", `spec.steps[2].when: step last: "failed" is not a final state of a step, the final states are Done, Failed, Skipped`},
		{"the wrong case, in front", v1alpha1.Step{When: "'FAILED' != steps.reset"}, "", `"FAILED" is not a final state`},
		{"the wrong case, in a list", v1alpha1.Step{When: "steps.reset in ['Done', 'error']"}, "", `"error" is not a final state`},
		{"a state that no step has by then", v1alpha1.Step{When: "steps.reset == 'Running'"}, "", `"Running" is not a final state`},
		{"itself", v1alpha1.Step{When: "steps.last == 'Done'"}, "", "steps.last: step last is not an earlier step, and expressions can read only earlier steps, the earlier steps are reset, validate-again"},
		{"no such output", v1alpha1.Step{Template: "validate", Inputs: input("boot", "outputs.reset.bot")}, "", "spec.steps[2].inputs[0].value: step last: outputs.reset.bot: RepairTemplate reboot has no output bot, its outputs are boot"},
		{"no such output, optional", v1alpha1.Step{Template: "validate", Inputs: input("boot", "outputs.?reset.?bot.orValue('')")}, "", "outputs.reset.bot: RepairTemplate reboot has no output bot"},
		{"a step without outputs", v1alpha1.Step{Template: "validate", Inputs: input("boot", "outputs['validate-again'].boot")}, "", "RepairTemplate validate has no outputs"},
		{"an input is missing", v1alpha1.Step{Template: "validate"}, "", "spec.steps[2].inputs: step last: RepairTemplate validate needs the input boot (.Inputs.boot): add it"},
		{"an input has another name", v1alpha1.Step{Template: "validate", Inputs: input("bot", "''")}, "", "needs the input boot"},
		{"succeedsIf", v1alpha1.Step{}, "steps.lats == 'Done'", "spec.succeedsIf: steps.lats: step lats does not exist, the earlier steps are reset, validate-again, last"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.last.Name = "last"
			c, err := Compile(v1alpha1.RepairChainSpec{SucceedsIf: tc.succeedsIf, Steps: []v1alpha1.Step{
				{Name: "reset", Template: "reboot"}, {Name: "validate-again", Template: "validate", Inputs: input("boot", "''")}, tc.last,
			}})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, tc.name, c.Check(templates), tc.want)
		})
	}
	c, err := Compile(v1alpha1.RepairChainSpec{Steps: []v1alpha1.Step{{Name: "one", When: "steps.two == 'Done'"}, {Name: "two"}}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "a later step", c.Check(nil), "spec.steps[0].when: step one: steps.two: step two is not an earlier step, and expressions can read only earlier steps, and this is the first step")
}

// TestADashInAName: a dash without brackets is an operator, and the error explains it.
func TestADashInAName(t *testing.T) {
	_, err := Compile(v1alpha1.RepairChainSpec{Steps: []v1alpha1.Step{{Name: "validate-again"}, {Name: "b", When: "steps.validate-again == 'Done'"}}})
	expect(t, "without brackets", err, "write a name with a dash in brackets: steps['validate-again'], outputs['validate-again']")
}

// TestCheckOfATemplate: names of fields, and what comes of them.
func TestCheckOfATemplate(t *testing.T) {
	spec := func(text string) string {
		return `{"apiVersion":"example.com/v1","kind":"Task","spec":{"a":` + text + `}}`
	}
	for _, tc := range []struct{ name, object, needs, want string }{
		{"nothing", spec(`1`), "", ""},
		{"the fields that there are", spec(`"{{ .NodeName }} {{ .HealthEvent.Message }} {{ .Session }} {{ .Run }} {{ .Step }} {{ range .HealthEvent.EntitiesImpacted }}{{ .EntityValue }}{{ end }}"`), "", ""},
		{"a typo", spec(`"{{ .NodeNam }}"`), "", "spec.template: .spec.a: there is no field .NodeNam, its fields are .Name, .NodeName"},
		{"a typo in the fault", spec(`"{{ .HealthEvent.Mesage }}"`), "", "there is no field .HealthEvent.Mesage"},
		{"inputs", spec(`"{{ .Inputs.boot }} {{ range .Inputs.parts }}{{ .x }}{{ end }}"`), "boot parts", ""},
		{"metadata", spec(`"{{ .HealthEvent.Metadata.rack }}"`), "", ""},
		{"a code", spec(`"{{ index .HealthEvent.ErrorCode 0 }}"`), "", ""},
		{"a function that fails", spec(`"{{ index .HealthEvent.ErrorCode 7 }}"`), "", "spec.template: rendering with a sample fault of node node-1: template t: .spec.a: "},
		{"another node", `{"apiVersion":"example.com/v1","kind":"Task","spec":{"nodeName":"gpu-7"}}`, "", `renders an object for node "gpu-7", the run is for "node-1"`},
		{"another node, with an input", `{"apiVersion":"example.com/v1","kind":"Task","spec":{"nodeName":"{{ .Name }}","b":"{{ .Inputs.b }}"}}`, "b", "renders an object for node "},
		{"another kind", `{"apiVersion":"example.com/v1","kind":"{{ .Kind }}s"}`, "", "renders a example.com/v1, Kind="},
	} {
		x := templateOf(t, "t", tc.object)
		_, err := x.Check()
		if expect(t, tc.name, err, tc.want); strings.Join(x.Needs, " ") != tc.needs {
			t.Errorf("%s: needs %v, want %s", tc.name, x.Needs, tc.needs)
		}
	}
}

// TestWarningsOfATemplate: what is accepted, and probably not meant.
func TestWarningsOfATemplate(t *testing.T) {
	absent := &v1alpha1.HealthRule{MultiMatch: &v1alpha1.MultiMatch{
		Healthy:   v1alpha1.Matchers{MatchFields: []v1alpha1.FieldMatcher{{Key: ".status.failure", Operator: "DoesNotExist"}}},
		Unhealthy: v1alpha1.Matchers{MatchFields: []v1alpha1.FieldMatcher{{Key: ".status.failure", Operator: "Exists"}}},
	}}
	ready := &v1alpha1.HealthRule{SingleConditionType: "Ready"}
	for name, tc := range map[string]struct {
		spec v1alpha1.RepairTemplateSpec
		want string
	}{
		"a rule that a new object meets": {v1alpha1.RepairTemplateSpec{ArtifactTracing: &v1alpha1.ArtifactTracing{HealthRule: *absent}}, "spec.artifactTracing.healthRule.multiMatch.healthy.matchFields[0]: DoesNotExist matches an object without status"},
		"the rule for people alone":      {v1alpha1.RepairTemplateSpec{HealthRule: ready}, "spec.healthRule has no effect"},
		"both rules":                     {v1alpha1.RepairTemplateSpec{HealthRule: ready, ArtifactTracing: &v1alpha1.ArtifactTracing{HealthRule: *ready}}, ""},
		"none":                           {v1alpha1.RepairTemplateSpec{}, ""},
	} {
		tc.spec.Template = runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`)}
		x, err := CompileTemplate(&v1alpha1.RepairTemplate{Spec: tc.spec})
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := x.Check()
		if got := strings.Join(warnings, "; "); err != nil || (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
}
