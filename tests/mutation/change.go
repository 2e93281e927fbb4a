// Package mutation changes pure packages in one place at a time, in a copy that only the
// compiler sees, and finds the changes that none of the package's own tests notices.
package mutation

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// Change is one place of a file, and what stands there instead.
type Change struct {
	File string
	Line int
	// New is what stands there instead.
	New string
	// Text is the line, with the place marked: what stands there, and stays true when
	// lines move.
	Text string
	// at and end are bytes of the file, from and to those of the whole expression or
	// statement, on the lines from first to last.
	at, end, from, to int
	first, last       int
	// guard lets the change wait for its turn.
	guard guard
}

// String describes the change, for people and for the list of explanations.
func (c Change) String() string { return fmt.Sprintf("%s: %s -> %q", c.File, c.Text, c.New) }

// apply is the file with the change.
func (c Change) apply(text []byte) string {
	return string(text[:c.at]) + c.New + string(text[c.end:])
}

// opposites are the operators that take each other's place: a comparison turns around, a
// bound moves by one, a condition needs both or one.
var opposites = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD,
}

// Changes are all changes of a Go file: comparisons, bounds, conditions, booleans, sums,
// and errors that are not returned.
func Changes(name string, text []byte) ([]Change, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	var out []Change
	change := func(whole ast.Node, from, to token.Pos, instead string, g guard) {
		at, end := files.Position(from).Offset, files.Position(to).Offset
		first, last := files.Position(whole.Pos()), files.Position(whole.End())
		out = append(out, Change{
			File: name, Line: files.Position(from).Line, New: instead, Text: marked(text, at, end),
			at: at, end: end, from: first.Offset, to: last.Offset, first: first.Line, last: last.Line, guard: g,
		})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if opposite, ok := opposites[n.Op]; ok && !isText(n) {
				change(n, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), opposite.String(), operators[n.Op])
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				change(n, n.OpPos, n.OpPos+1, "", turned)
			}
		case *ast.Ident:
			if opposite, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
				change(n, n.Pos(), n.End(), opposite, turned)
			}
		case *ast.ReturnStmt:
			if last := len(n.Results) - 1; last >= 0 && isError(n.Results[last]) {
				from, to := n.Results[last].Pos(), n.Results[last].End()
				before := text[files.Position(n.Pos()).Offset:files.Position(from).Offset]
				change(n, from, to, "nil", guard{before: "if mutant(%n) { " + string(bytes.ReplaceAll(before, []byte("\n"), nil)) + "nil }; "})
			}
		}
		return true
	})
	number(out)
	return out, nil
}

// number numbers changes with the same words, in the order of their lines.
func number(changes []Change) {
	slices.SortStableFunc(changes, func(a, b Change) int { return a.at - b.at })
	seen := map[string]int{}
	for i, c := range changes {
		if seen[c.String()]++; seen[c.String()] > 1 {
			changes[i].Text += fmt.Sprintf(" #%d", seen[c.String()])
		}
	}
}

// marked is the line of a place, which stands between arrows.
func marked(text []byte, at, end int) string {
	line, _, _ := bytes.Cut(text[end:], []byte("\n"))
	begin := bytes.LastIndexByte(text[:at], '\n') + 1
	return strings.Join(strings.Fields(string(text[begin:at])+"»"+string(text[at:end])+"«"+string(line)), " ")
}

// isText reports whether a sum joins texts, as far as its literals show. Other sums of texts do
// not compile as a difference, and are skipped then.
func isText(e *ast.BinaryExpr) bool {
	for _, side := range []ast.Expr{e.X, e.Y} {
		switch side := side.(type) {
		case *ast.BasicLit:
			if side.Kind == token.STRING && e.Op == token.ADD {
				return true
			}
		case *ast.BinaryExpr:
			if side.Op == token.ADD && isText(side) {
				return true
			}
		}
	}
	return false
}

// isError reports whether a result is an error, by its name or by what makes it.
func isError(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "err" || strings.HasPrefix(e.Name, "err") && len(e.Name) > 3 && e.Name[3] >= 'A' && e.Name[3] <= 'Z'
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok {
			p, ok := f.X.(*ast.Ident)
			return ok && (p.Name == "fmt" && f.Sel.Name == "Errorf" || p.Name == "errors")
		}
	}
	return false
}
