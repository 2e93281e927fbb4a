package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// foreignReceivers are the modules with receivers that do not match their types yet. Each
// goes from the list with the change that renames them.
var foreignReceivers = []string{
	"csp-plugins", "fault-remediation", "health-monitors", "janitor", "node-health-check", "platform-connectors",
	"repair-chain",
}

// TestReceiversMatchTheirTypes: the name of a receiver begins as its type does, and has
// only letters of it, in their order: r or rc of a Reconciler, never d.
func TestReceiversMatchTheirTypes(t *testing.T) {
	foreign := map[string]int{}
	for name, text := range sources(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		if ast.IsGenerated(file) {
			continue
		}
		module, _, _ := strings.Cut(name, "/")
		for _, d := range file.Decls {
			if receiver, of := receiverOf(d); receiver != "" && !abbreviates(receiver, of) {
				if foreign[module]++; !slices.Contains(foreignReceivers, module) {
					t.Errorf("%s: a method of %s has the receiver %s", name, of, receiver)
				}
			}
		}
	}
	for _, module := range foreignReceivers {
		if foreign[module] == 0 {
			t.Errorf("all receivers of %s match their types: take it from the list", module)
		}
	}
}

// receiverOf is the name of a method's receiver, and that of its type; empty if it has none.
func receiverOf(d ast.Decl) (name, of string) {
	method, ok := d.(*ast.FuncDecl)
	if !ok || method.Recv == nil || len(method.Recv.List[0].Names) == 0 || method.Recv.List[0].Names[0].Name == "_" {
		return "", ""
	}
	expr := method.Recv.List[0].Type
	for {
		switch x := expr.(type) {
		case *ast.StarExpr:
			expr = x.X
		case *ast.IndexExpr:
			expr = x.X
		case *ast.IndexListExpr:
			expr = x.X
		case *ast.Ident:
			return method.Recv.List[0].Names[0].Name, x.Name
		default:
			return "", ""
		}
	}
}

// abbreviates reports whether a name begins as a type's does and has only letters of it, in
// their order.
func abbreviates(name, of string) bool {
	name, of = strings.ToLower(name), strings.ToLower(of)
	if name[0] != of[0] {
		return false
	}
	for i := range len(name) {
		at := strings.IndexByte(of, name[i])
		if at < 0 {
			return false
		}
		of = of[at+1:]
	}
	return true
}

func TestAbbreviates(t *testing.T) {
	for name, want := range map[string]map[string]bool{
		"Reconciler": {"r": true, "rc": true, "d": false, "cr": false, "rx": false},
		"lookBack":   {"l": true, "lb": true, "b": false, "back": false, "lookBack": true},
		"xids":       {"x": true, "xx": false},
	} {
		for receiver, want := range want {
			if got := abbreviates(receiver, name); got != want {
				t.Errorf("%s of %s: %t, want %t", receiver, name, got, want)
			}
		}
	}
}
