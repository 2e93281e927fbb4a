package testrun

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// LongTests finds the tests that call testkit.Long, by the folder of their package
// ("./tests/journey").
func LongTests(root string) (map[string][]string, error) {
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("looking for long tests: %w", err)
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return fmt.Errorf("looking for long tests: %w", err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !callsLong(f) {
				continue
			}
			if !strings.HasPrefix(f.Name.Name, "Test") {
				return fmt.Errorf("%s: %s calls testkit.Long and is no test: make test-all finds only what tests call themselves", path, f.Name)
			}
			found["./"+dir] = append(found["./"+dir], f.Name.Name)
		}
		return nil
	})
	if err == nil && len(found) == 0 {
		err = errors.New("looking for long tests: file not found")
	}
	return found, err
}

func callsLong(f *ast.FuncDecl) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if ok && selector.Sel.Name == "Long" {
			if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == "testkit" {
				found = true
			}
		}
		return !found
	})
	return found
}

// Pattern is the -run flag that runs the tests of all packages.
func Pattern(tests map[string][]string) string {
	var names []string
	for _, list := range tests {
		names = append(names, list...)
	}
	slices.Sort(names)
	return "^(" + strings.Join(slices.Compact(names), "|") + ")$"
}
