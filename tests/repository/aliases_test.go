package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAliasesAreComplete: the import paths that the specification names have every name of
// the packages of module api.
func TestAliasesAreComplete(t *testing.T) {
	for alias, api := range map[string]string{"data-models/pkg/protos": "api/protos", "janitor/protos/v1": "api/csp/v1"} {
		if have, want := exported(t, alias), exported(t, api); !slices.Equal(have, want) {
			t.Errorf("%s has\n%v, %s\n%v", alias, have, api, want)
		}
	}
}

// exported are the names that a package gives to others, methods apart.
func exported(t *testing.T, folder string) (names []string) {
	t.Helper()
	dir := filepath.Join("..", "..", folder)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			names = append(names, declared(d)...)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		t.Fatalf("%s has no exported name", folder)
	}
	return names
}

func declared(d ast.Decl) (names []string) {
	var idents []*ast.Ident
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			idents = append(idents, d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				idents = append(idents, s.Name)
			case *ast.ValueSpec:
				idents = append(idents, s.Names...)
			}
		}
	}
	for _, i := range idents {
		if i.IsExported() {
			names = append(names, i.Name)
		}
	}
	return names
}
