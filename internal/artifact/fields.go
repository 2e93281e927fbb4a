package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// Fields checks the names of fields that the texts of a template read of data of a type:
// an error names each that no value of the type has. The keys are those that it reads of
// maps, by the map's place: .Inputs, .HealthEvent.Metadata. What depends on a value is
// left unchecked.
func (t *Template) Fields(data reflect.Type) (keys map[string][]string, err error) {
	w := &walk{data: data, keys: map[string][]string{}}
	var problems []error
	for _, place := range slices.Sorted(maps.Keys(t.texts)) {
		w.problems = nil
		w.node(t.texts[place].Root, data)
		for _, p := range w.problems {
			problems = append(problems, fmt.Errorf("%s: %w", place, p))
		}
	}
	for at := range w.keys {
		slices.Sort(w.keys[at])
		w.keys[at] = slices.Compact(w.keys[at])
	}
	return w.keys, errors.Join(problems...)
}

// walk goes through the tree of a text. dot is the type that {{ . }} has; nil is unknown.
type walk struct {
	data     reflect.Type
	keys     map[string][]string
	problems []error
}

func (w *walk) node(n parse.Node, dot reflect.Type) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, inner := range n.Nodes {
				w.node(inner, dot)
			}
		}
	case *parse.ActionNode:
		w.pipe(n.Pipe, dot)
	case *parse.TemplateNode:
		w.pipe(n.Pipe, dot)
	case *parse.IfNode:
		w.branch(n.BranchNode, dot, func(reflect.Type) reflect.Type { return dot })
	case *parse.WithNode:
		w.branch(n.BranchNode, dot, func(of reflect.Type) reflect.Type { return of })
	case *parse.RangeNode:
		w.branch(n.BranchNode, dot, element)
	}
}

func (w *walk) branch(n parse.BranchNode, dot reflect.Type, inside func(reflect.Type) reflect.Type) {
	of := w.pipe(n.Pipe, dot)
	w.node(n.List, inside(of))
	w.node(n.ElseList, dot)
}

// pipe is the type of a pipeline that is one value and nothing else; else unknown.
func (w *walk) pipe(p *parse.PipeNode, dot reflect.Type) (of reflect.Type) {
	if p == nil {
		return nil
	}
	for _, command := range p.Cmds {
		for _, argument := range command.Args {
			of = w.value(argument, dot)
		}
	}
	if len(p.Cmds) != 1 || len(p.Cmds[0].Args) != 1 {
		return nil
	}
	return of
}

func (w *walk) value(n parse.Node, dot reflect.Type) reflect.Type {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return w.path(dot, n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			return w.path(w.data, n.Ident[1:])
		}
	case *parse.PipeNode:
		return w.pipe(n, dot)
	case *parse.ChainNode:
		w.value(n.Node, dot)
	}
	return nil
}

// path is the type of a member of a member of a value.
func (w *walk) path(of reflect.Type, names []string) reflect.Type {
	for i, name := range names {
		if of == nil {
			return nil
		}
		if of.Kind() == reflect.Map {
			at := "." + strings.Join(names[:i], ".")
			w.keys[at] = append(w.keys[at], name)
			of = dereference(of.Elem())
			continue
		}
		next, ok := memberOf(of, name)
		if !ok {
			w.problems = append(w.problems, fmt.Errorf("there is no field .%s%s", strings.Join(names[:i+1], "."), offered(of)))
			return nil
		}
		of = dereference(next)
	}
	return of
}

// memberOf is the type of a field of a struct. A template calls no methods.
func memberOf(of reflect.Type, name string) (reflect.Type, bool) {
	if of.Kind() != reflect.Struct {
		return nil, false
	}
	field, ok := of.FieldByName(name)
	return field.Type, ok && field.IsExported()
}

// dereference is a type without its pointer; one that depends on the value is unknown.
func dereference(of reflect.Type) reflect.Type {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() == reflect.Interface {
		return nil
	}
	return of
}

// element is the type of what a range goes over.
func element(of reflect.Type) reflect.Type {
	if of == nil || !slices.Contains([]reflect.Kind{reflect.Slice, reflect.Array, reflect.Map}, of.Kind()) {
		return nil
	}
	return dereference(of.Elem())
}

// offered lists the fields of a struct.
func offered(of reflect.Type) string {
	if of.Kind() != reflect.Struct {
		return ": it is a " + of.Kind().String()
	}
	var names []string
	for f := range of.Fields() {
		if f.IsExported() && !f.Anonymous {
			names = append(names, "."+f.Name)
		}
	}
	if len(names) == 0 {
		return ": " + of.String() + " has no fields, and templates cannot call methods"
	}
	return ", its fields are " + strings.Join(names, ", ")
}

const (
	// MaxOutputs is how many bytes of JSON the outputs of one object have at most,
	// together: they are kept whole.
	MaxOutputs = 16 << 10
	// previewLength is how many characters of an output its preview shows (RFC 0020 of
	// Cartographer as it was built).
	previewLength = 1024
)

// Output is one value that was read from a healthy object, and what made it.
type Output struct {
	Name string `json:"name"`
	// Digest of the value's YAML, "sha256:" and 64 hexadecimal digits.
	Digest string `json:"digest"`
	// Preview is the begin of the value's YAML.
	Preview string `json:"preview,omitempty"`
	// Value is the whole value as JSON.
	Value string `json:"value"`
	// DefinitionDigest and InputDigest are of the definition that led to the value.
	DefinitionDigest string `json:"definitionDigest"`
	InputDigest      string `json:"inputDigest,omitempty"`
	// LastTransitionTime is when the digest changed last.
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// Digest of a value: that of its YAML, as Cartographer's RFC 0020 has it.
func Digest(v any) (string, error) {
	text, err := yaml.Marshal(v)
	if err != nil {
		return "", err
	}
	return digestOf(text), nil
}

// Preview is the digest of a value, and the begin of its YAML.
func Preview(v any) (digest, begin string, err error) {
	text, err := yaml.Marshal(v)
	if err != nil {
		return "", "", err
	}
	return digestOf(text), preview(text), nil
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Read reads the outputs of a healthy object at their paths. They are those of the
// definition that is applied to it; an output whose digest is that of before keeps its
// time. Either all are there, each once, or the error names one that is not.
func Read(live *unstructured.Unstructured, paths map[string]string, by Definition, before []Output, now time.Time) ([]Output, error) {
	var out []Output
	var problems []error
	size := 0
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		o, err := read(live, name, paths[name])
		if size += len(o.Value); size > MaxOutputs {
			err = fmt.Errorf("the outputs exceed %d bytes in total", MaxOutputs)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("output %s at %s: %w", name, paths[name], err))
			continue
		}
		o.DefinitionDigest, o.InputDigest, o.LastTransitionTime = by.Digest, by.InputDigest, now.UTC()
		if i := slices.IndexFunc(before, func(b Output) bool { return b.Name == name }); i >= 0 && before[i].Digest == o.Digest {
			o.LastTransitionTime = before[i].LastTransitionTime
		}
		out = append(out, o)
	}
	return out, errors.Join(problems...)
}

func read(live *unstructured.Unstructured, name, path string) (Output, error) {
	value, err := healthrule.Lookup(live, path)
	if err != nil {
		return Output{}, err
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return Output{}, fmt.Errorf("encoding the value: %w", err)
	}
	whole, err := yaml.YAMLToJSON(text)
	if err != nil {
		return Output{}, fmt.Errorf("encoding the value: %w", err)
	}
	return Output{Name: name, Digest: digestOf(text), Preview: preview(text), Value: string(whole)}, nil
}

// preview cuts a text between two characters.
func preview(text []byte) string {
	runes := []rune(strings.ToValidUTF8(string(text), "�"))
	return string(runes[:min(len(runes), previewLength)])
}
