package chain

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
)

// states are those of a step that is over, as conditions of later steps see it.
var states = []string{string(v1alpha1.StepDone), string(v1alpha1.StepFailed), string(v1alpha1.StepSkipped)}

// sampleNode is the node of the run by which templates are tried.
const sampleNode = "node-1"

// Check finds what is wrong with a template beyond what keeps it from being compiled:
// fields that there are not, and objects that no run takes. A run that is under way is not
// checked again. What is legal and probably not meant is a warning.
func (t *Template) Check() (warnings []string, err error) {
	keys, err := t.object.Fields(reflect.TypeFor[data]())
	if err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	t.Needs = keys[".Inputs"]
	if err := t.try(keys[".HealthEvent.Metadata"]); err != nil {
		return nil, err
	}
	if t.Rule != nil {
		for _, w := range t.Rule.Warnings() {
			warnings = append(warnings, "spec.artifactTracing.healthRule."+w)
		}
	}
	if t.Rule == nil && t.Display != nil {
		warnings = append(warnings, "spec.healthRule has no effect: a step is done as soon as its object exists, set spec.artifactTracing.healthRule")
	}
	return warnings, nil
}

// try makes the object of a made-up run. Which values inputs have is not known: that the
// texts fail on made-up ones is no mistake.
func (t *Template) try(metadata []string) error {
	run := &v1alpha1.RepairRun{
		ObjectMeta: metav1.ObjectMeta{Name: "sample", UID: "00000000-0000-4000-8000-000000000000"},
		Spec: v1alpha1.RepairRunSpec{NodeName: sampleNode, Chain: "sample", Fault: v1alpha1.Fault{
			Record: "00000000-0000-7000-8000-000000000000", Session: "00000000-0000-7000-8000-000000000001", Action: "RESTART_VM",
			Agent: "agent", CheckName: "check", ComponentClass: "GPU", ErrorCode: []string{"79"}, Message: "message",
			EntitiesImpacted:   []v1alpha1.Entity{{EntityType: "GPU_UUID", EntityValue: "GPU-00000000-0000-0000-0000-000000000000"}},
			Metadata:           map[string]string{},
			GeneratedTimestamp: metav1.NewTime(time.Unix(0, 0).UTC()),
		}},
	}
	for _, key := range metadata {
		run.Spec.Fault.Metadata[key] = "value"
	}
	inputs := map[string]any{}
	for _, name := range t.Needs {
		inputs[name] = sampleNode
	}
	_, err := t.Render(run, "sample", inputs)
	_, unsure := errors.AsType[*renderError](err)
	if err == nil || unsure && len(inputs) > 0 {
		return nil
	}
	return fmt.Errorf("spec.template: rendering with a sample fault of node %s: %w", sampleNode, err)
}

// Check finds what expressions of a chain name that there is not: steps, outputs, states;
// and inputs that a template needs and a step does not give. The templates are checked.
func (c *Chain) Check(templates map[string]*Template) error {
	var problems []error
	for i, s := range c.Steps {
		expressions := s.inputs
		if s.when != nil {
			expressions = append([]*expression{s.when}, expressions...)
		}
		for _, e := range expressions {
			for _, p := range c.names(e, i, templates) {
				problems = append(problems, fmt.Errorf("%s: step %s: %w", e.field, s.Name, p))
			}
		}
		t := templates[s.Template]
		if t == nil {
			continue
		}
		for _, name := range t.Needs {
			if !slices.ContainsFunc(s.Inputs, func(in v1alpha1.Input) bool { return in.Name == name }) {
				problems = append(problems, fmt.Errorf("spec.steps[%d].inputs: step %s: RepairTemplate %s needs the input %s (.Inputs.%[4]s): add it", i, s.Name, t.Name, name))
			}
		}
	}
	if c.succeedsIf != nil {
		for _, p := range c.names(c.succeedsIf, len(c.Steps), templates) {
			problems = append(problems, fmt.Errorf("%s: %w", c.succeedsIf.field, p))
		}
	}
	return errors.Join(problems...)
}

// names finds what an expression of step i names that there is not.
func (c *Chain) names(e *expression, i int, templates map[string]*Template) (problems []error) {
	reported := map[string]bool{}
	for _, r := range e.reads.refs {
		at := slices.IndexFunc(c.Steps, func(s Step) bool { return s.Name == r.step })
		switch {
		case reported[r.step]:
			continue
		case at < 0:
			problems = append(problems, fmt.Errorf("%s: step %s does not exist%s", r, r.step, c.before(i)))
		case at >= i:
			problems = append(problems, fmt.Errorf("%s: step %s is not an earlier step, and expressions can read only earlier steps%s", r, r.step, c.before(i)))
		default:
			if err := offers(r, templates[c.Steps[at].Template]); err != nil {
				problems = append(problems, err)
			}
			continue
		}
		reported[r.step] = true
	}
	for _, state := range e.reads.states {
		if !slices.Contains(states, state) {
			problems = append(problems, fmt.Errorf("%q is not a final state of a step, the final states are %s", state, strings.Join(states, ", ")))
		}
	}
	return problems
}

// before lists the steps that an expression of step i sees.
func (c *Chain) before(i int) string {
	if i == 0 {
		return ", and this is the first step"
	}
	var names []string
	for _, s := range c.Steps[:i] {
		names = append(names, s.Name)
	}
	return ", the earlier steps are " + strings.Join(names, ", ")
}

// offers returns an error if a template lacks the output that is read.
func offers(r ref, t *Template) error {
	if r.output == "" || t == nil || t.Paths[r.output] != "" {
		return nil
	}
	if len(t.Paths) == 0 {
		return fmt.Errorf("%s: RepairTemplate %s has no outputs", r, t.Name)
	}
	return fmt.Errorf("%s: RepairTemplate %s has no output %s, its outputs are %s", r, t.Name, r.output, strings.Join(slices.Sorted(maps.Keys(t.Paths)), ", "))
}
