// Package predecessor knows what the earlier NVSentinel calls its flags, variables,
// keys, values and marks, and what they are here. Who moves over is told by the
// programs and by the chart; docs/coming-from-nvsentinel.md has the whole list.
package predecessor

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:generate go run ./page

//go:embed names.yaml
var text []byte

// Page is where a person reads on.
const Page = "docs/coming-from-nvsentinel.md"

// Kind is what a name is a name of.
type Kind string

// Kinds.
const (
	Flag        Kind = "flag"
	Environment Kind = "environment"
	Key         Kind = "key"
	Value       Kind = "value"
	Label       Kind = "label"
	Annotation  Kind = "annotation"
	Metric      Kind = "metric"
	Object      Kind = "object"
	Path        Kind = "path"
)

// Kinds lists every kind, in the order of the page.
func Kinds() []Kind {
	return []Kind{Flag, Environment, Key, Value, Label, Annotation, Metric, Object, Path}
}

// Same is a Here of what has the same name and meaning.
const Same = "="

// Name is one of its names.
type Name struct {
	Kind Kind `json:"kind"`
	// At are the programs here that it would be given to; empty is all of them.
	At   []string `json:"at,omitempty"`
	Name string   `json:"name"`
	// Here is what to use instead, or Same; empty if there is nothing like it.
	Here string `json:"here,omitempty"`
	// Note is what else to know.
	Note string `json:"note,omitempty"`
}

// All is the list; it is valid, which a test sees to.
func All() []Name {
	var out []Name
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		return nil
	}
	return out
}

// For says whether a program would be given the name.
func (n Name) For(program string) bool {
	return len(n.At) == 0 || slices.Contains(n.At, program)
}

// Instead is what to use instead, for a person.
func (n Name) Instead() string {
	switch {
	case n.Here == "":
		return "here there is nothing like it: " + n.Note
	case n.Note != "":
		return "here it is " + n.Here + "; " + n.Note
	default:
		return "here it is " + n.Here
	}
}

// Text is the whole sentence about the name.
func (n Name) Text() string {
	what := map[Kind]string{Environment: "variable"}[n.Kind]
	if what == "" {
		what = string(n.Kind)
	}
	return fmt.Sprintf("%s is a %s of the earlier NVSentinel; %s (%s)", n.Name, what, n.Instead(), Page)
}

// Hint is the sentence about what a program was given and does not know, or empty.
// A key is found by its whole path, by a table that it is in, or, where the list
// has a name without a table, by its last part; how its words are set apart, by case
// or by a sign, does not count.
func Hint(kind Kind, program, given string) string {
	if kind == Key {
		given = folded(given)
	}
	names := slices.DeleteFunc(All(), func(n Name) bool { return n.Kind != kind || !n.For(program) })
	for _, same := range []func(Name) bool{
		func(n Name) bool { return n.Name == given || kind == Key && folded(n.Name) == given },
		func(n Name) bool { return kind == Key && strings.HasPrefix(given, folded(n.Name)+".") },
		func(n Name) bool { return kind == Key && strings.HasSuffix(given, "."+folded(n.Name)) },
	} {
		if i := slices.IndexFunc(names, same); i >= 0 {
			return names[i].Text()
		}
	}
	return ""
}

func folded(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// InEnvironment are the variables of a program's environment that mean something to
// the earlier NVSentinel and nothing here.
func InEnvironment(program string, lookup func(name string) (string, bool)) []Name {
	if lookup == nil {
		return nil
	}
	return slices.DeleteFunc(All(), func(n Name) bool {
		value, set := lookup(n.Name)
		return n.Kind != Environment || !n.For(program) || !set || value == ""
	})
}
