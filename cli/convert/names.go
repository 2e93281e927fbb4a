// Package convert rewrites what the earlier NVSentinel was configured with into the
// present spelling: configuration files, values of its chart, variables of the environment
// and flags. It decides from text alone and reads nothing else.
package convert

import (
	_ "embed"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed names.yaml
var names []byte

// Page is where a person reads on.
const Page = "docs/tasks/migrate-from-nvsentinel.md"

// Kind is what a name is a name of.
type Kind string

// Kinds.
const (
	Flag        Kind = "flag"
	Environment Kind = "environment"
	Key         Kind = "key"
	Spelling    Kind = "spelling"
	Value       Kind = "value"
	Label       Kind = "label"
	Annotation  Kind = "annotation"
	Metric      Kind = "metric"
	Object      Kind = "object"
	Path        Kind = "path"
)

// Kinds lists every kind, in the order of the page.
func Kinds() []Kind {
	return []Kind{Flag, Environment, Key, Spelling, Value, Label, Annotation, Metric, Object, Path}
}

// Same is a Here of what has the same name and meaning.
const Same = "="

// Name is one name of the earlier NVSentinel.
type Name struct {
	Kind Kind `json:"kind"`
	// At are the programs that read it here; empty is all of them.
	At   []string `json:"at,omitempty"`
	Name string   `json:"name"`
	// To is what it is rewritten to, where the value stays as it is: a key beside it, a path
	// of values, a flag. Empty leaves the change to a person.
	To string `json:"to,omitempty"`
	// Here is what to use instead, in words, or Same; empty is To, or nothing.
	Here string `json:"here,omitempty"`
	// Note is what else to know.
	Note string `json:"note,omitempty"`
	// Values are the values that are rewritten too.
	Values map[string]string `json:"values,omitempty"`
}

// All is the list; it is valid, which a test sees to.
func All() []Name {
	var out []Name
	if err := yaml.UnmarshalStrict(names, &out); err != nil {
		return nil
	}
	for i, n := range out {
		if n.Here == "" {
			out[i].Here = n.To
		}
	}
	return out
}

// For reports whether the name is one of a program's; "" is any program.
func (n Name) For(program string) bool {
	return program == "" || len(n.At) == 0 || slices.Contains(n.At, program)
}

// Instead is what to use instead, for a person.
func (n Name) Instead() string {
	switch {
	case n.Here == "":
		return "no counterpart: " + n.Note
	case n.Note != "":
		return "use " + n.Here + ", " + n.Note
	default:
		return "use " + n.Here
	}
}

// of lists the names of a kind that a program reads.
func of(kind Kind, program string) []Name {
	return slices.DeleteFunc(All(), func(n Name) bool { return n.Kind != kind || !n.For(program) })
}

// find is the name of a key: its whole path, a table that it is in, or, where the list has
// a name without a table, its last part. Case, "-" and "_" do not count.
func find(list []Name, path string) (Name, bool) {
	path = folded(path)
	for _, same := range []func(string) bool{
		func(n string) bool { return n == path },
		func(n string) bool { return strings.HasPrefix(path, n+".") },
		func(n string) bool { return strings.HasSuffix(path, "."+n) },
	} {
		if i := slices.IndexFunc(list, func(n Name) bool { return same(folded(n.Name)) }); i >= 0 {
			return list[i], true
		}
	}
	return Name{}, false
}

func folded(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}
