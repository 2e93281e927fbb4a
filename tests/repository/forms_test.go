package repository

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// properNames may begin an error or a log. A word with more capitals, such as DCGM or RebootNode, is one anyway.
var properNames = []string{"Event", "Job", "Kubernetes", "Lease", "Node", "Pod", "Redfish", "Secret"}

// givenLog is a text of the specification, by which operators search their logs.
const givenLog = "Skipping PERSIST_ONLY event - no node conditions or K8s events will be created"

var (
	capitalized = regexp.MustCompile(`^[A-Z][a-z]+\b`)
	punctuated  = regexp.MustCompile(`[.,;:!?]\s*$`)
)

// made is what a call makes, an error or a log, and which argument is the text.
func made(call *ast.CallExpr) (kind string, text int) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", 0
	}
	if of, ok := sel.X.(*ast.Ident); ok {
		switch of.Name + "." + sel.Sel.Name {
		case "errors.New", "fmt.Errorf":
			return "error", 0
		case "status.Error", "status.Errorf", "status.New", "status.Newf":
			return "error", 1
		}
	}
	switch sel.Sel.Name {
	case "Debug", "Info", "Warn", "Error":
		return "log", 0
	case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
		return "log", 1
	}
	return "", 0
}

// ends are the first and the last part of a text, empty where they are no literals.
func ends(e ast.Expr) (first, last string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		if e.Kind != token.STRING || err != nil {
			return "", ""
		}
		return value, value
	case *ast.BinaryExpr:
		first, _ = ends(e.X)
		_, last = ends(e.Y)
	}
	return first, last
}

// misformed are the errors and logs of a file that have another form than docs/contributing/style.md gives them,
// and how many there are of each kind.
func misformed(file, text string) (out []string, read map[string]int, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) {
		return nil, nil, err
	}
	read = map[string]int{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		kind, at := made(call)
		if kind == "" || at >= len(call.Args) {
			return true
		}
		first, last := ends(call.Args[at])
		read[kind]++
		line := set.Position(call.Pos()).Line
		if word := capitalized.FindString(first); word != "" && first != givenLog && !slices.Contains(properNames, word) {
			out = append(out, fmt.Sprintf("%s:%d: the %s %.60q begins with a capital letter and no proper name", file, line, kind, first))
		}
		if punctuated.MatchString(last) {
			out = append(out, fmt.Sprintf("%s:%d: the %s ends with punctuation: %q", file, line, kind, last))
		}
		return true
	})
	return out, read, nil
}

// TestFormsOfErrorsAndLogs: both begin with a lower-case letter or a proper name, and end without punctuation.
func TestFormsOfErrorsAndLogs(t *testing.T) {
	all := map[string]int{}
	for file, text := range sources(t) {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(text, "\n\t\"testing\"\n") {
			continue
		}
		found, read, err := misformed(file, text)
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			t.Error(f)
		}
		for kind, n := range read {
			all[kind] += n
		}
	}
	if all["error"] < 500 || all["log"] < 200 {
		t.Errorf("read %v: too few to mean anything", all)
	}
}

// TestAWrongFormIsFound plants texts of both kinds.
func TestAWrongFormIsFound(t *testing.T) {
	for code, want := range map[string]int{
		`return errors.New("Opening failed")`:                            1,
		`return fmt.Errorf("opening the store: %w.", err)`:               1,
		`return fmt.Errorf("Opening " + store + " failed.")`:             2,
		`return status.Errorf(codes.Internal, "Refused: %v", err)`:       1,
		`return status.Error(codes.Internal, "refused, ")`:               1,
		`log.InfoContext(ctx, "Record evaluated")`:                       1,
		`s.log.Warn("record evaluated.", "node", n)`:                     1,
		`return errors.New("opening the store failed: " + why)`:          0,
		`log.Info("DCGM watches accepted", "text", "Not a message.")`:    0,
		`return fmt.Errorf("RebootNode %s of node %s: %w", a, b, err)`:   0,
		`return fmt.Errorf("Node %s is not found", name)`:                0,
		`log.Error(problem.Error()); slog.Info(text, "key", "No text.")`: 0,
	} {
		got, _, err := misformed("a/b.go", inGo(code))
		if err != nil || len(got) != want {
			t.Errorf("%s: %q, %v, want %d findings", code, got, err, want)
		}
	}
}
