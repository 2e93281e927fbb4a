// Package chain decides about runs of repair chains: what a chain and its templates
// mean, which step is due, what its object is made of, and what its verdict does to the
// run. It is pure: objects are read and written by others.
package chain

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// janitorGroup is of the kinds that reboot and replace nodes.
const janitorGroup = "janitor.dgxc.nvidia.com"

// costLimit bounds one evaluation, in CEL's units.
const costLimit = 1_000_000

// Template is a compiled RepairTemplate.
type Template struct {
	Name string
	// Digest of its spec.
	Digest string
	GVK    schema.GroupVersionKind
	// Rule of reading and writing; nil where what exists is healthy.
	Rule *healthrule.Rule
	// Display is the rule by which people see the health of the object; nil shows nothing.
	Display   *healthrule.Rule
	Paths     map[string]string
	Namespace string
	Lifecycle artifact.Lifecycle
	// Needs are the inputs that the texts name; Check finds them.
	Needs []string

	object *artifact.Template
}

// CompileTemplate compiles a RepairTemplate; an error names every field that is wrong.
func CompileTemplate(t *v1alpha1.RepairTemplate) (*Template, error) {
	out := &Template{Name: t.Name, Paths: map[string]string{}, Namespace: t.Spec.Namespace, Lifecycle: artifact.Immutable}
	var problems []error
	refuse := func(field string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", field, err))
		}
	}
	var object map[string]any
	if err := utiljson.Unmarshal(t.Spec.Template.Raw, &object); err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	out.GVK = schema.FromAPIVersionAndKind(text(object["apiVersion"]), text(object["kind"]))
	if out.GVK.Version == "" || out.GVK.Kind == "" {
		refuse("spec.template", errors.New("apiVersion and kind are required"))
	}
	var err error
	out.object, err = artifact.ParseTemplate(object)
	refuse("spec.template", err)
	if t.Spec.HealthRule != nil {
		rule := ruleOf(*t.Spec.HealthRule)
		refuse("spec.healthRule", rule.Validate())
		out.Display = &rule
	}
	if tracing := t.Spec.ArtifactTracing; tracing != nil {
		rule := ruleOf(tracing.HealthRule)
		refuse("spec.artifactTracing.healthRule", rule.Validate())
		out.Rule = &rule
	}
	for _, o := range t.Spec.Outputs {
		refuse("spec.outputs."+o.Name+".path", healthrule.CheckPath(o.Path))
		out.Paths[o.Name] = o.Path
	}
	if t.Spec.Lifecycle == v1alpha1.Mutable {
		out.Lifecycle = artifact.Mutable
	}
	if out.Lifecycle == artifact.Mutable && out.GVK.Group == janitorGroup {
		refuse("spec.lifecycle", fmt.Errorf("must not be mutable, because a %s acts once: a second creation would reboot or replace the node again", out.GVK.Kind))
	}
	out.Digest, err = artifact.Digest(t.Spec)
	refuse("spec", err)
	return out, errors.Join(problems...)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// ruleOf converts a rule for package healthrule: the two have one form in JSON.
func ruleOf(r v1alpha1.HealthRule) (rule healthrule.Rule) {
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &rule)
	}
	if err != nil { // neither can: no rule is left, which is refused
		return healthrule.Rule{}
	}
	return rule
}

// Chain is a compiled RepairChain.
type Chain struct {
	Steps []Step

	succeedsIf *expression // nil is the default rule of finish
}

// Step is one of its steps.
type Step struct {
	v1alpha1.Step

	when   *expression // nil is always
	inputs []*expression
}

// expression is a compiled one, at its field.
type expression struct {
	cel.Program
	field, text string
	reads       reads
}

// Compile compiles a chain; an error names every field that is wrong.
func Compile(spec v1alpha1.RepairChainSpec) (*Chain, error) {
	env, err := cel.NewEnv(ext.Strings(), cel.OptionalTypes(),
		cel.Variable("fault", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("action", cel.StringType), cel.Variable("node", cel.StringType),
		cel.Variable("outputs", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("steps", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("messages", cel.MapType(cel.StringType, cel.StringType)))
	if err != nil {
		return nil, fmt.Errorf("creating the environment of expressions: %w", err)
	}
	c := &Chain{}
	var problems []error
	program := func(field, text string, kinds ...*cel.Type) *expression {
		e, err := compile(env, text, kinds)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w%s", field, err, dashed(spec, text)))
			return nil
		}
		e.field = field
		return e
	}
	for i, s := range spec.Steps {
		at := fmt.Sprintf("spec.steps[%d]", i)
		step := Step{Step: s}
		if s.When != "" {
			step.when = program(at+".when", s.When, cel.BoolType, cel.DynType)
		}
		for j, in := range s.Inputs {
			step.inputs = append(step.inputs, program(fmt.Sprintf("%s.inputs[%d].value", at, j), in.Value))
		}
		c.Steps = append(c.Steps, step)
	}
	if spec.SucceedsIf != "" {
		c.succeedsIf = program("spec.succeedsIf", spec.SucceedsIf, cel.BoolType, cel.DynType)
	}
	return c, errors.Join(problems...)
}

// dashed is a hint on how to write a step name with a dash, if the text seems to need it.
func dashed(spec v1alpha1.RepairChainSpec, text string) string {
	for _, s := range spec.Steps {
		if strings.Contains(s.Name, "-") && strings.Contains(text, "."+s.Name) {
			return fmt.Sprintf(", write a name with a dash in brackets: steps['%[1]s'], outputs['%[1]s']", s.Name)
		}
	}
	return ""
}

// compile checks an expression and makes its program; without kinds any type will do.
func compile(env *cel.Env, text string, kinds []*cel.Type) (*expression, error) {
	checked, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	fits := len(kinds) == 0
	for _, k := range kinds {
		fits = fits || checked.OutputType().IsExactType(k)
	}
	if !fits {
		return nil, fmt.Errorf("the result type is %s, must be %s", checked.OutputType(), kinds[0])
	}
	program, err := env.Program(checked, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, err
	}
	return &expression{Program: program, text: text, reads: readsOf(checked)}, nil
}
