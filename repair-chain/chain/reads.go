package chain

import (
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// Names of the variables that have a member for each step.
const (
	varSteps    = "steps"
	varOutputs  = "outputs"
	varMessages = "messages"
)

// reads is what an expression reads of steps.
type reads struct {
	// refs are the members that it names.
	refs []ref
	// states are texts that it compares the state of a step with.
	states []string
	// all: it reads the states of steps that it does not name.
	all bool
}

// ref is a member of a variable: steps.reset, outputs.reboot.boot.
type ref struct{ variable, step, output string }

// String is the reference as it is written in an expression.
func (r ref) String() string {
	if r.output == "" {
		return r.variable + "." + r.step
	}
	return r.variable + "." + r.step + "." + r.output
}

// state reports whether the expression reads the state of a step.
func (r reads) state(step string) bool {
	return r.all || slices.ContainsFunc(r.refs, func(x ref) bool { return x.variable == varSteps && x.step == step })
}

// readsOf walks through a checked expression.
func readsOf(checked *cel.Ast) (r reads) {
	whole, named := 0, 0
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind && e.AsIdent() == varSteps {
			whole++
		}
		if of, name, ok := member(e); ok && of.Kind() == ast.IdentKind {
			switch variable := of.AsIdent(); variable {
			case varSteps:
				named++
				r.refs = append(r.refs, ref{variable: variable, step: name})
			case varOutputs, varMessages:
				r.refs = append(r.refs, ref{variable: variable, step: name})
			}
		} else if outer, step, inner := member(of); ok && inner && outer.Kind() == ast.IdentKind && outer.AsIdent() == varOutputs {
			r.refs = append(r.refs, ref{varOutputs, step, name})
		}
		r.states = append(r.states, compared(e)...)
	}))
	r.all = whole > named
	return r
}

// member is the member of a map that an expression names, in whatever form: a.b, a['b'],
// a.?b, a[?'b'], has(a.b).
func member(e ast.Expr) (of ast.Expr, name string, ok bool) {
	if e == nil {
		return nil, "", false
	}
	switch e.Kind() { //nolint:exhaustive // the others name no member
	case ast.SelectKind:
		s := e.AsSelect()
		return s.Operand(), s.FieldName(), true
	case ast.CallKind:
		call := e.AsCall()
		if !slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect}, call.FunctionName()) || len(call.Args()) != 2 {
			return nil, "", false
		}
		name, ok = literal(call.Args()[1])
		return call.Args()[0], name, ok
	}
	return nil, "", false
}

// literal is the text of one.
func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().Value().(string)
	return s, ok
}

// compared are the texts that an expression compares the state of a step with.
func compared(e ast.Expr) (out []string) {
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.Equals, operators.NotEquals:
		for i := range args {
			if s, ok := literal(args[i]); ok && isState(args[1-i]) {
				out = append(out, s)
			}
		}
	case operators.In:
		if !isState(args[0]) || args[1].Kind() != ast.ListKind {
			return nil
		}
		for _, item := range args[1].AsList().Elements() {
			if s, ok := literal(item); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// isState reports whether an expression is the state of a step.
func isState(e ast.Expr) bool {
	of, _, ok := member(e)
	return ok && of.Kind() == ast.IdentKind && of.AsIdent() == varSteps
}
