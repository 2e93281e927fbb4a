package policy

import (
	"fmt"
	"maps"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// read is one place of an object that an expression reads, with all below it.
type reading struct {
	lookup bool                    // else the resource itself
	kind   schema.GroupVersionKind // of a lookup
	path   []string
}

// reader walks an expression and notes what it reads.
type reader struct {
	out []reading
	err error
}

// readings lists what an expression reads. A lookup whose version or kind is not
// a literal is an error: no cache could be filled and no right given for it.
func readings(e ast.Expr) ([]reading, error) {
	r := &reader{}
	r.walk(e)
	return r.out, r.err
}

func (r *reader) walk(e ast.Expr) {
	if found, ok := r.chain(e, nil); ok {
		r.out = append(r.out, found)
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		r.walk(e.AsSelect().Operand())
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			r.walk(call.Target())
		}
		r.all(call.Args())
	case ast.ListKind:
		r.all(e.AsList().Elements())
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			r.walk(x.AsMapEntry().Key())
			r.walk(x.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, x := range e.AsStruct().Fields() {
			r.walk(x.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		r.all([]ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()})
	default: // literals and other variables read nothing
	}
}

func (r *reader) all(list []ast.Expr) {
	for _, e := range list {
		r.walk(e)
	}
}

// selects are the operators that take one field or key of an object: a['b'],
// a.?b and a[?'b'].
var selects = map[string]bool{operators.Index: true, operators.OptSelect: true, operators.OptIndex: true}

// chain resolves a path of fields and literal keys that begins at the resource
// or at a looked-up object.
func (r *reader) chain(e ast.Expr, path []string) (reading, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return reading{path: path}, e.AsIdent() == "resource"
	case ast.SelectKind:
		s := e.AsSelect()
		return r.chain(s.Operand(), prepend(s.FieldName(), path))
	case ast.CallKind:
		call := e.AsCall()
		switch {
		case call.FunctionName() == lookupName:
			r.all(call.Args())
			return r.lookup(call, path)
		case selects[call.FunctionName()] && len(call.Args()) == 2:
			if key, ok := literal(call.Args()[1]); ok {
				return r.chain(call.Args()[0], prepend(key, path))
			}
		}
	default:
	}
	return reading{}, false
}

func (r *reader) lookup(call ast.CallExpr, path []string) (reading, bool) {
	args := call.Args()
	version, ok1 := literal(args[0])
	kind, ok2 := literal(args[1])
	gv, err := schema.ParseGroupVersion(version)
	switch {
	case !ok1 || !ok2:
		r.err = fmt.Errorf("version and kind of %s must be literal strings, so that a cache can be filled before it is asked", lookupName)
	case err != nil || version == "" || kind == "":
		r.err = fmt.Errorf("%s(%q, %q): this is no version and kind", lookupName, version, kind)
	}
	return reading{lookup: true, kind: gv.WithKind(kind), path: path}, true
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

func prepend(s string, path []string) []string { return append([]string{s}, path...) }

// tree is a set of paths; a node without children is kept with all below it.
type tree struct {
	whole bool
	below map[string]*tree
}

const metadataKey = "metadata"

// newTree keeps what identifies an object.
func newTree() *tree {
	t := &tree{below: map[string]*tree{}}
	for _, path := range [][]string{
		{"apiVersion"}, {"kind"}, {metadataKey, "name"}, {metadataKey, "namespace"},
		{metadataKey, "uid"}, {metadataKey, "resourceVersion"},
	} {
		t.add(path)
	}
	return t
}

func (t *tree) add(path []string) {
	if len(path) == 0 {
		t.whole = true
		return
	}
	if t.below[path[0]] == nil {
		t.below[path[0]] = &tree{below: map[string]*tree{}}
	}
	t.below[path[0]].add(path[1:])
}

// prune copies what the tree keeps; values are shared, and the keys are the
// tree's own, so that an object does not keep those it was decoded with. Even of
// an object that is kept whole, managedFields go.
func (t *tree) prune(object map[string]any) map[string]any {
	if t.whole {
		out := maps.Clone(object)
		if metadata, ok := out[metadataKey].(map[string]any); ok {
			out[metadataKey] = withoutManagedFields(metadata)
		}
		return out
	}
	out := make(map[string]any, min(len(object), len(t.below)))
	for key, child := range t.below {
		value, ok := object[key]
		inner, nested := value.(map[string]any)
		switch {
		case !ok:
		case nested && !child.whole:
			out[key] = child.prune(inner)
		case nested && key == metadataKey:
			out[key] = withoutManagedFields(inner)
		default:
			out[key] = value
		}
	}
	return out
}

func withoutManagedFields(metadata map[string]any) map[string]any {
	out := make(map[string]any, len(metadata))
	for key, value := range metadata {
		if key != "managedFields" {
			out[key] = value
		}
	}
	return out
}
