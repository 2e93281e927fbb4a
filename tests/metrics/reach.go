package metrics

import (
	"go/ast"
	"go/token"
	"go/types"
)

// program is what a main function can reach: every function that is named on the way,
// and every method of a type that is.
type program struct {
	*source
	seen map[types.Object]bool
	// sites are the calls of package prometheus.
	sites []*ast.CallExpr
	// calls are by what is called: a function, or a variable that holds one.
	calls map[types.Object][]*ast.CallExpr
	// values are the expressions that a variable or a field is given.
	values map[types.Object][]ast.Expr
	// owners are the functions of parameters.
	owners map[types.Object]owner
	// registerers are the parameters that are one.
	registerers []registerer
	// main is the call that starts a service.
	main *ast.CallExpr
	// several: the program runs controllers, each of which is read by itself.
	several bool
}

// owner is the function of a parameter: who calls it calls this object.
type owner struct {
	callee types.Object
	params []types.Object
	// variadic: the last parameter takes all that follow.
	variadic bool
}

// registerer is a parameter and where its function is.
type registerer struct {
	object   types.Object
	from, to token.Pos
}

func (s *source) reach(main types.Object) *program {
	p := &program{
		source: s, seen: map[types.Object]bool{}, calls: map[types.Object][]*ast.CallExpr{},
		values: map[types.Object][]ast.Expr{}, owners: map[types.Object]owner{},
	}
	p.visit(main)
	return p
}

// origin is the declared object of an instance of a generic one.
func origin(o types.Object) types.Object {
	switch o := o.(type) {
	case *types.Func:
		return o.Origin()
	case *types.Var:
		return o.Origin()
	}
	return o
}

func (p *program) visit(o types.Object) {
	if o = origin(o); o == nil || p.seen[o] {
		return
	}
	p.seen[o] = true
	if t, ok := o.(*types.TypeName); ok {
		if named, ok := types.Unalias(t.Type()).(*types.Named); ok {
			for m := range named.Origin().Methods() {
				p.visit(m)
			}
		}
		return
	}
	node := p.decls[o]
	if f, ok := node.(*ast.FuncDecl); ok {
		p.own(o, f.Type)
		p.registers(f)
	}
	if node != nil {
		ast.Inspect(node, func(n ast.Node) bool { p.note(n); return true })
	}
}

// note records what a syntax node contains, and visits the objects that it names.
func (p *program) note(n ast.Node) {
	switch n := n.(type) {
	case *ast.Ident:
		if o := p.info.Uses[n]; o != nil && (p.decls[origin(o)] != nil || isType(o)) {
			p.visit(o)
		}
	case *ast.CallExpr:
		if p.fromPrometheus(n.Fun) != "" {
			p.sites = append(p.sites, n)
		}
		if o := p.object(n.Fun); o != nil {
			p.calls[o] = append(p.calls[o], n)
			p.starts(o, n)
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if len(n.Values) == len(n.Names) {
				p.give(p.info.Defs[name], n.Values[i])
			}
		}
	case *ast.AssignStmt:
		p.assign(n)
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok {
					p.give(p.info.Uses[key], kv.Value)
				}
			}
		}
	}
}

// starts keeps the call that starts a service.
func (p *program) starts(o types.Object, n *ast.CallExpr) {
	if o.Pkg() == nil || o.Pkg().Path() != module+"internal/daemon" {
		return
	}
	switch o.Name() {
	case "Main", "NewController":
		p.main = n
	case "Controllers":
		p.several = true
	}
}

func isType(o types.Object) bool { _, ok := o.(*types.TypeName); return ok }

func (p *program) assign(n *ast.AssignStmt) {
	if len(n.Lhs) != len(n.Rhs) {
		return
	}
	for i, left := range n.Lhs {
		o := p.object(left)
		if name, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
			o = p.info.Defs[name]
		}
		p.give(o, n.Rhs[i])
	}
}

func (p *program) give(o types.Object, e ast.Expr) {
	if o = origin(o); o == nil {
		return
	}
	p.values[o] = append(p.values[o], e)
	if f, ok := e.(*ast.FuncLit); ok {
		p.own(o, f.Type)
	}
}

func (p *program) registers(f *ast.FuncDecl) {
	for _, field := range f.Type.Params.List {
		if p.fromPrometheus(field.Type) == "Registerer" {
			for _, name := range field.Names {
				p.registerers = append(p.registerers, registerer{p.info.Defs[name], f.Pos(), f.End()})
			}
		}
	}
}

// own keeps whose the parameters of a function are.
func (p *program) own(callee types.Object, f *ast.FuncType) {
	at := owner{callee: callee}
	for _, field := range f.Params.List {
		_, at.variadic = field.Type.(*ast.Ellipsis)
		for _, name := range field.Names {
			at.params = append(at.params, p.info.Defs[name])
		}
	}
	for _, param := range at.params {
		p.owners[param] = at
	}
}

// object returns what an expression names, or nil if that is not part of the project.
func (p *program) object(e ast.Expr) types.Object {
	switch e := e.(type) {
	case *ast.Ident:
		return origin(p.info.Uses[e])
	case *ast.SelectorExpr:
		return origin(p.info.Uses[e.Sel])
	case *ast.IndexExpr:
		return p.object(e.X)
	}
	return nil
}
