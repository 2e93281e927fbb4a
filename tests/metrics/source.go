// Package metrics reads from the source which metrics each program registers: it
// follows what main can reach, and works out the names, labels and texts that the
// constructors of Prometheus are given there. So the page of all metrics needs no list
// beside the code, and has what is registered late or in one role only too.
package metrics

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/nvidia/nvsentinel/"

// apart are folders without programs of the product.
var apart = []string{"bin", "hack", "tests", "testdata", "examples", "docs", "distros"}

// source is all packages of the repository. Other packages count as empty: types are known only
// from the repository's own code.
type source struct {
	root string
	set  *token.FileSet
	info types.Info
	pkgs map[string]*types.Package
	// mains are the main functions, and those that make a controller, by folder.
	mains map[string]types.Object
	// decls are the functions, and the variables of packages.
	decls map[types.Object]ast.Node
}

func read(root string) (*source, error) {
	s := &source{
		root: root, set: token.NewFileSet(), pkgs: map[string]*types.Package{}, mains: map[string]types.Object{},
		decls: map[types.Object]ast.Node{},
		info: types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		},
	}
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if slices.Contains(apart, e.Name()) || len(e.Name()) > 1 && strings.HasPrefix(e.Name(), ".") && name != root {
			return filepath.SkipDir
		}
		return s.folder(name)
	})
	return s, err
}

func (s *source) folder(name string) error {
	dir, err := filepath.Rel(s.root, name)
	if err != nil {
		return err
	}
	if files, err := filepath.Glob(filepath.Join(name, "*.go")); err != nil || len(files) == 0 {
		return err
	}
	pkg, err := s.Import(module + filepath.ToSlash(dir))
	if err != nil {
		return err
	}
	main := pkg.Scope().Lookup("main")
	if pkg.Name() != "main" {
		main = controller(pkg)
	}
	if main != nil {
		s.mains[filepath.ToSlash(dir)] = main
	}
	return nil
}

// controller is the function by which nvsentinel-controller runs a package, nil if it has
// none.
func controller(pkg *types.Package) types.Object {
	f, ok := pkg.Scope().Lookup("Controller").(*types.Func)
	if !ok || f.Signature().Results().Len() != 1 || f.Signature().Results().At(0).Type().String() != module+"internal/daemon.Controller" {
		return nil
	}
	return f
}

// Import gives a package of the repository, or an empty one.
func (s *source) Import(name string) (*types.Package, error) {
	if pkg := s.pkgs[name]; pkg != nil {
		return pkg, nil
	}
	dir, ours := strings.CutPrefix(name, module)
	if !ours {
		s.pkgs[name] = types.NewPackage(name, path.Base(name))
		s.pkgs[name].MarkComplete()
		return s.pkgs[name], nil
	}
	files, err := s.parse(filepath.Join(s.root, dir))
	if err != nil {
		return nil, err
	}
	// What other modules' packages declare is not known, so there are errors.
	check := types.Config{Importer: s, Error: func(error) {}, FakeImportC: true}
	pkg, _ := check.Check(name, s.set, files, &s.info)
	s.pkgs[name] = pkg
	for _, file := range files {
		s.declare(file)
	}
	return pkg, nil
}

func (s *source) parse(dir string) ([]*ast.File, error) {
	context := build.Default
	context.CgoEnabled = false
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		match, err := context.MatchFile(dir, filepath.Base(name))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if !match || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (s *source) declare(file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			s.decls[s.info.Defs[d.Name]] = d
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						s.decls[s.info.Defs[name]] = v
					}
				}
			}
		}
	}
}

const prometheus = "github.com/prometheus/client_golang/prometheus"

// fromPrometheus is the name of what an expression such as prometheus.NewCounter takes
// from that package, empty if it is none.
func (s *source) fromPrometheus(e ast.Expr) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	if pkg, ok := s.info.Uses[x].(*types.PkgName); ok && pkg.Imported().Path() == prometheus {
		return sel.Sel.Name
	}
	return ""
}
