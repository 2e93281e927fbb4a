package labeling

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Bounds of a file of classes.
const (
	maxClasses   = 16
	maxOverrides = 1024
)

// Builtin are the classes where no file sets others.
//
//go:embed classes.toml
var Builtin string

// document is the file as it is written; its keys are those of the earlier
// NVSentinel.
type document struct {
	Enabled *bool   `toml:"enabled"`
	Classes []entry `toml:"classes"`
}

type entry struct {
	Name    string `toml:"name"`
	Enabled *bool  `toml:"enabled"`
	Labels  struct {
		Current  string `toml:"current"`
		Expected string `toml:"expected"`
	} `toml:"labels"`
	GroupingLabels []string `toml:"groupingLabels"`
	Overrides      []struct {
		MatchLabels map[string]string `toml:"matchLabels"`
		Count       int               `toml:"count"`
	} `toml:"expectedCountOverrides"`
	CurrentExpression string `toml:"currentExpression"`
}

// Parse reads and compiles a file of classes; file is its name in errors. It
// returns those that are enabled, and joins all problems of all of them.
func Parse(file, text string) ([]Class, error) {
	var d document
	if err := config.Decode(file, []byte(text), &d); err != nil {
		return nil, err
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("creating the CEL environment: %w", err)
	}
	classes, wrong := d.classes(env)
	var problems []error
	for _, p := range wrong {
		problems = append(problems, fmt.Errorf("%s: %w", file, p))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if d.Enabled != nil && !*d.Enabled {
		return nil, nil
	}
	return classes, nil
}

func (d document) classes(env *cel.Env) (out []Class, problems []error) {
	if len(d.Classes) > maxClasses {
		return nil, []error{fmt.Errorf("there are %d classes, at most %d are allowed", len(d.Classes), maxClasses)}
	}
	seen := map[string]bool{}
	for i, e := range d.Classes {
		at := fmt.Sprintf("classes[%d] (%q)", i, e.Name)
		for _, p := range e.problems() {
			problems = append(problems, fmt.Errorf("%s: %s", at, p))
		}
		c := e.class()
		if seen[c.Labels.Current] {
			problems = append(problems, fmt.Errorf("%s: another class has the label %s", at, c.Labels.Current))
		}
		seen[c.Labels.Current] = true
		if err := c.compile(env, e.CurrentExpression); err != nil {
			problems = append(problems, fmt.Errorf("%s: currentExpression: %w", at, err))
		}
		if e.Enabled == nil || *e.Enabled {
			out = append(out, c)
		}
	}
	return out, problems
}

// className is what stands in a label before ".count.".
var className = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// labelled is the name by which a class's labels go.
func (e entry) labelled() string {
	name, _ := strings.CutPrefix(e.Labels.Current, "nvsentinel.dgxc.nvidia.com/")
	name, isCount := strings.CutSuffix(name, ".count.current")
	if !isCount {
		return e.Name
	}
	return name
}

func (e entry) class() Class {
	c := Class{Name: e.Name, Labels: nodemark.CountLabelsOf(e.labelled()), GroupBy: e.GroupingLabels}
	for _, o := range e.Overrides {
		c.Overrides = append(c.Overrides, Override{o.MatchLabels, o.Count})
	}
	return c
}

// problems lists what is wrong with an entry, apart from its expression.
func (e entry) problems() []string {
	var out []string
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	keys := nodemark.CountLabelsOf(e.labelled())
	wrong(!className.MatchString(e.labelled()), "name %q is not up to 32 lower-case letters, digits and '-'", e.labelled())
	wrong(e.Labels.Current != "" && e.Labels.Current != keys.Current, "labels.current %q is not nvsentinel.dgxc.nvidia.com/<name>.count.current", e.Labels.Current)
	wrong(e.Labels.Expected != "" && e.Labels.Expected != keys.Expected, "labels.expected %q is not %q", e.Labels.Expected, keys.Expected)
	wrong(strings.TrimSpace(e.CurrentExpression) == "", "currentExpression is missing")
	for _, key := range e.GroupingLabels {
		wrong(len(validation.IsQualifiedName(key)) > 0, "groupingLabels: %q is not a valid label key", key)
		wrong(countLabel.MatchString(key), "groupingLabels: %q is a label that is computed from the group", key)
	}
	wrong(len(slices.Compact(slices.Sorted(slices.Values(e.GroupingLabels)))) != len(e.GroupingLabels), "groupingLabels has a duplicate label")
	wrong(len(e.GroupingLabels) == 0, "groupingLabels is empty: every node would be expected to have as many devices as the largest one")
	wrong(len(e.Overrides) > maxOverrides, "there are %d expectedCountOverrides, at most %d are allowed", len(e.Overrides), maxOverrides)
	for i, o := range e.Overrides {
		wrong(len(o.MatchLabels) == 0, "expectedCountOverrides[%d].matchLabels is empty: it would match every node", i)
		wrong(o.Count < 0 || o.Count > MaxCount, "expectedCountOverrides[%d].count %d is not from 0 to %d", i, o.Count, MaxCount)
	}
	return out
}
