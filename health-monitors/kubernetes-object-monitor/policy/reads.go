package policy

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// step leads from a value to a part of it: to a field or key, or to every element.
type step struct {
	key  string
	each bool // the elements of a list; key is empty
}

// reading is one place of an object that an expression reads, with all below it.
type reading struct {
	lookup bool                    // else the resource itself
	kind   schema.GroupVersionKind // of a lookup
	path   []step
	// touched means that nothing below the place is read here, only whether it is there
	// and, of a list, how many elements it has.
	touched bool
}

// variable is a name that a comprehension gives to a value. If it is known, at is the
// place that the value comes from; what any other is made of was noted where it was made.
type variable struct {
	name  string
	known bool
	at    reading
}

// reader walks an expression and notes what it reads.
type reader struct {
	scope []variable // innermost last
	out   []reading
	err   error
}

// readings lists what an expression reads. A lookup whose version or kind is not
// a literal is an error: no cache could be filled and no right given for it.
func readings(e ast.Expr) ([]reading, error) {
	r := &reader{}
	r.walk(e)
	return r.out, r.err
}

func (r *reader) walk(e ast.Expr) {
	if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() { // has()
		if _, ok := r.touch(e); ok {
			return
		}
	}
	if found, ok := r.chain(e, nil); ok {
		r.out = append(r.out, found)
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		r.walk(e.AsSelect().Operand())
	case ast.CallKind:
		r.call(e.AsCall())
	case ast.ListKind:
		r.all(e.AsList().Elements()...)
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			r.all(x.AsMapEntry().Key(), x.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, x := range e.AsStruct().Fields() {
			r.walk(x.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		r.comprehension(e.AsComprehension())
	default: // literals and other variables read nothing
	}
}

func (r *reader) all(list ...ast.Expr) {
	for _, e := range list {
		r.walk(e)
	}
}

// touch notes a place that is looked at without what is below it, and returns what
// a variable for its value stands for; ok is false if the expression is no place.
func (r *reader) touch(e ast.Expr, path ...step) (at reading, ok bool) {
	at, ok = r.chain(e, path)
	if ok {
		touched := at
		touched.touched = true
		r.out = append(r.out, touched)
	}
	return at, ok
}

// call walks a call. A comparison with null and hasValue() read nothing below what
// they look at.
func (r *reader) call(call ast.CallExpr) {
	args := call.Args()
	switch call.FunctionName() {
	case operators.Equals, operators.NotEquals:
		for i, e := range args {
			if isNull(args[1-i]) {
				if _, ok := r.touch(e); ok {
					return
				}
			}
		}
	case "hasValue":
		if _, ok := r.touch(call.Target()); ok {
			return
		}
	}
	if call.IsMemberFunction() {
		r.walk(call.Target())
	}
	r.all(args...)
}

func isNull(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral().Type() == types.NullType
}

// comprehension walks what exists, map, cel.bind and their like are expanded to.
// Where the range is a place, the variable stands for each of its elements. If it is
// a map when it is evaluated, it is kept whole, since its keys are iterated.
// Names resolve as in evaluation: the accumulator's first, then the iteration's.
func (r *reader) comprehension(c ast.ComprehensionExpr) {
	var element variable
	if element.at, element.known = r.touch(c.IterRange(), step{each: true}); !element.known {
		r.walk(c.IterRange())
	}
	result := r.accumulator(c)
	outer := len(r.scope)
	if element.name = c.IterVar(); c.HasIterVar2() {
		element.name = c.IterVar2()
		r.scope = append(r.scope, element, variable{name: c.IterVar()}) // an index or a key
	} else {
		r.scope = append(r.scope, element)
	}
	r.scope = append(r.scope, result)
	r.walk(c.LoopCondition())
	if !result.known { // else the step is the name alone
		r.walk(c.LoopStep())
	}
	r.scope = append(r.scope[:outer], result)
	r.walk(c.Result())
	r.scope = r.scope[:outer]
}

// accumulator walks what a comprehension's result begins with. A step that leaves
// it as it is makes it a second name of a place, as in cel.bind.
func (r *reader) accumulator(c ast.ComprehensionExpr) variable {
	v := variable{name: c.AccuVar()}
	if next := c.LoopStep(); next.Kind() == ast.IdentKind && next.AsIdent() == v.name {
		v.at, v.known = r.touch(c.AccuInit())
	}
	if !v.known {
		r.walk(c.AccuInit())
	}
	return v
}

// selects are the operators that take one field, key or element: a['b'], a.?b,
// a[?'b'], a[0].
var selects = map[string]bool{operators.Index: true, operators.OptSelect: true, operators.OptIndex: true}

// chain resolves a path of fields, literal keys and literal indexes that begins at
// the resource, at a looked-up object, or at a variable that stands for a place. An
// optional's value is the place that the optional is of.
func (r *reader) chain(e ast.Expr, path []step) (reading, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return r.variable(e.AsIdent(), path)
	case ast.SelectKind:
		s := e.AsSelect()
		return r.chain(s.Operand(), prepend(step{key: s.FieldName()}, path))
	case ast.CallKind:
		call := e.AsCall()
		switch name := call.FunctionName(); {
		case name == lookupName:
			r.all(call.Args()...)
			return r.lookup(call, path)
		case name == "value", name == "orValue":
			r.all(call.Args()...)
			return r.chain(call.Target(), path)
		case selects[name] && len(call.Args()) == 2:
			if to, ok := literalStep(call.Args()[1]); ok {
				return r.chain(call.Args()[0], prepend(to, path))
			}
		}
	default:
	}
	return reading{}, false
}

// variable is the place below what a name stands for. With a dot in front it is the
// resource whatever comprehension gives that name to something else.
func (r *reader) variable(name string, path []step) (reading, bool) {
	for _, v := range slices.Backward(r.scope) {
		if v.name == name {
			at := v.at
			at.path = slices.Concat(at.path, path)
			return at, v.known
		}
	}
	return reading{path: path}, strings.TrimPrefix(name, ".") == resourceName
}

func (r *reader) lookup(call ast.CallExpr, path []step) (reading, bool) {
	args := call.Args()
	version, ok1 := literal(args[0])
	kind, ok2 := literal(args[1])
	gv, err := schema.ParseGroupVersion(version)
	switch {
	case !ok1 || !ok2:
		r.err = fmt.Errorf("version and kind of %s must be literal strings, because the cache is filled before the first lookup", lookupName)
	case err != nil || version == "" || kind == "":
		r.err = fmt.Errorf("%s(%q, %q) is not a valid version and kind", lookupName, version, kind)
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

// literalStep is where a literal in brackets leads to. Which element a number means
// makes no difference to what is kept of it.
func literalStep(e ast.Expr) (step, bool) {
	if key, ok := literal(e); ok {
		return step{key: key}, true
	}
	if e.Kind() != ast.LiteralKind {
		return step{}, false
	}
	_, ok := e.AsLiteral().(types.Int)
	return step{each: true}, ok
}

func prepend(s step, path []step) []step { return append([]step{s}, path...) }
