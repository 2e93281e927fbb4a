package metrics

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// bindings are the expressions that parameters and fields stand for on one way to a
// constructor.
type bindings map[types.Object]ast.Expr

// open is the error of a parameter or a field that is not bound yet.
type open struct{ object types.Object }

func (o open) Error() string { return o.object.Name() + " is not known" }

// each calls do with the bindings of every way on which what do asks for gets its
// values: from each call of the function for a parameter, from each place that fills
// it for a field.
func (p *program) each(b bindings, do func(bindings) error) error {
	err := do(b)
	asked, ok := errors.AsType[open](err)
	if !ok {
		return err
	}
	ways := p.bindingsOf(asked.object)
	if len(ways) == 0 {
		return err
	}
	for _, way := range ways {
		more := maps.Clone(b)
		maps.Copy(more, way)
		if _, again := more[asked.object]; !again {
			return err
		}
		if err := p.each(more, do); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) bindingsOf(o types.Object) []bindings {
	var out []bindings
	if f, ok := p.owners[o]; ok {
		for _, call := range p.calls[f.callee] {
			out = append(out, f.bind(call))
		}
		return out
	}
	for _, e := range p.values[o] {
		out = append(out, bindings{o: e})
	}
	return out
}

// bind gives the parameters the arguments of a call.
func (f owner) bind(call *ast.CallExpr) bindings {
	b := bindings{}
	for i, param := range f.params {
		switch {
		case f.variadic && i == len(f.params)-1 && !call.Ellipsis.IsValid():
			b[param] = &ast.CompositeLit{Elts: call.Args[i:]}
		case i < len(call.Args):
			b[param] = call.Args[i]
		}
	}
	return b
}

// lookup is the expression that an object stands for.
func (p *program) lookup(o types.Object, b bindings) (ast.Expr, error) {
	if e, ok := b[o]; ok {
		return e, nil
	}
	v, ok := o.(*types.Var)
	_, param := p.owners[o]
	if values := p.values[o]; ok && !v.IsField() && !param && len(values) == 1 {
		return values[0], nil
	}
	return nil, open{o}
}

// text is the string that an expression has.
func (p *program) text(e ast.Expr, b bindings) (string, error) {
	if v := p.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v), nil
	}
	switch e := e.(type) {
	case *ast.BasicLit: // in a literal of a type that is not known
		return strconv.Unquote(e.Value)
	case *ast.BinaryExpr:
		left, err := p.text(e.X, b)
		if err != nil || e.Op != token.ADD {
			return "", err
		}
		right, err := p.text(e.Y, b)
		return left + right, err
	case *ast.CallExpr:
		if p.fromPrometheus(e.Fun) == "BuildFQName" {
			return p.joined(e.Args, b)
		}
	case *ast.Ident, *ast.SelectorExpr:
		if o := p.object(e); o != nil {
			is, err := p.lookup(o, b)
			if err != nil {
				return "", err
			}
			return p.text(is, b)
		}
	}
	return "", fmt.Errorf("%s: what this text says cannot be worked out", p.set.Position(e.Pos()))
}

// joined is a name of its parts.
func (p *program) joined(parts []ast.Expr, b bindings) (string, error) {
	var out []string
	for _, part := range parts {
		if part == nil {
			continue
		}
		text, err := p.text(part, b)
		if err != nil {
			return "", err
		}
		if text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(out, "_"), nil
}

// literal is the composite that an expression is: itself, converted, or what a
// function of one statement returns. nil is none. What it needs is bound in b.
func (p *program) literal(e ast.Expr, b bindings) (*ast.CompositeLit, error) {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return e, nil
	case *ast.CallExpr:
		if p.fromPrometheus(e.Fun) != "" { // a conversion
			return p.literal(e.Args[0], b)
		}
		callee := p.object(e.Fun)
		body := p.returned(callee)
		if body == nil {
			break
		}
		for _, f := range p.owners {
			if f.callee == callee {
				maps.Copy(b, f.bind(e))
				break
			}
		}
		return p.literal(body, b)
	case *ast.Ident:
		if e.Name == "nil" {
			return nil, nil
		}
		is, err := p.lookup(p.object(e), b)
		if err != nil {
			return nil, err
		}
		return p.literal(is, b)
	}
	return nil, fmt.Errorf("%s: what is given here cannot be worked out", p.set.Position(e.Pos()))
}

// returned is the expression of a function that does nothing but return it.
func (p *program) returned(callee types.Object) ast.Expr {
	var body *ast.BlockStmt
	if f, ok := p.decls[callee].(*ast.FuncDecl); ok {
		body = f.Body
	} else if values := p.values[callee]; len(values) == 1 {
		if f, ok := values[0].(*ast.FuncLit); ok {
			body = f.Body
		}
	}
	if body == nil || len(body.List) != 1 {
		return nil
	}
	if r, ok := body.List[0].(*ast.ReturnStmt); ok && len(r.Results) == 1 {
		return r.Results[0]
	}
	return nil
}

// texts are the elements of a list of strings, or the keys of a map of them.
func (p *program) texts(e ast.Expr, b bindings) ([]string, error) {
	if e == nil {
		return nil, nil
	}
	list, err := p.literal(e, b)
	if err != nil || list == nil {
		return nil, err
	}
	var out []string
	for _, item := range list.Elts {
		if kv, ok := item.(*ast.KeyValueExpr); ok {
			item = kv.Key
		}
		text, err := p.text(item, b)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return slices.Clip(out), nil
}
