package artifact

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
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
			of = known(of.Elem())
			continue
		}
		next, ok := memberOf(of, name)
		if !ok {
			w.problems = append(w.problems, fmt.Errorf("there is no .%s%s", strings.Join(names[:i+1], "."), offered(of)))
			return nil
		}
		of = known(next)
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

// known is a type without its pointer; one that depends on the value is unknown.
func known(of reflect.Type) reflect.Type {
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
	return known(of.Elem())
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
		return ": " + of.String() + " has no fields, and templates call no methods"
	}
	return "; there are " + strings.Join(names, ", ")
}
