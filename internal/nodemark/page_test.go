package nodemark_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestThePageNamesEveryKey compares the table of docs/reference/labels-and-annotations.md with the constants:
// every key has one row, with its kind, and no row has a key that is none.
func TestThePageNamesEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/labels-and-annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "## Marks of a Node\n")
	if !found {
		t.Fatal("docs/reference/labels-and-annotations.md has no section on the marks of a Node")
	}
	got := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.HasPrefix(line, "| `") {
			continue
		}
		key := strings.Trim(cells[1], " `")
		if _, twice := got[key]; twice {
			t.Errorf("%s has two rows", key)
		}
		got[key] = strings.TrimSpace(cells[2])
		if key == nodemark.StateLabel {
			var states []string
			for _, s := range nodemark.States() {
				states = append(states, "`"+string(s)+"`")
			}
			if !strings.Contains(cells[5], strings.Join(states, ", ")+";") {
				t.Errorf("the row of the state label says %q, the states are %v", cells[5], states)
			}
		}
	}
	want := keys(t)
	want[nodemark.CountLabelsOf("gpu").Current] = "label"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys and their kinds (-constants +page):\n%s", diff)
	}
	for _, text := range []string{nodemark.UnhealthyReason("<check>"), nodemark.HealthyReason("<check>"), record.HealthyMessage} {
		if !strings.Contains(section, "`"+text+"`") {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// keys are the package's constants that are keys, with their kinds: those with a
// slash, and those that are named as they are.
func keys(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Type != nil || len(spec.Names) != 1 || len(spec.Values) != 1 {
				return true
			}
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			value, err := strconv.Unquote(lit.Value)
			if name := spec.Names[0].Name; err == nil && (strings.Contains(value, "/") || name != value && name[1:] == value[min(1, len(value)):]) {
				out[value] = kind(name)
			}
			return true
		})
	}
	return out
}

// kind is what a constant of this name is the key of.
func kind(name string) string {
	switch {
	case name == "DevicesAnnotation":
		return "annotation of a Pod"
	case name == "ClearPrefix", name == "ReleasePrefix":
		return "annotation prefix"
	case name == "DefaultLabelPrefix":
		return "label prefix"
	case strings.HasSuffix(name, "Label"):
		return "label"
	}
	return "annotation"
}
