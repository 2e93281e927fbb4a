package names_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/tests/names"
)

// file is the list, which make generate writes.
const file = "tests/names/names.txt"

// TestNames compares the list with the code.
func TestNames(t *testing.T) {
	root := filepath.Join("..", "..")
	have, err := names.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(reference.Write) != "" {
		reference.Check(t, file, strings.Join(have, "\n")+"\n")
		return
	}
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatalf("%v: run make generate", err)
	}
	if problem := compare(strings.Split(strings.TrimSpace(string(text)), "\n"), have); problem != "" {
		t.Error(problem)
	}
}

// compare describes how the names of the code differ from the list, empty if they are the same.
func compare(listed, have []string) string {
	var out strings.Builder
	differ := func(title string, names, others []string) {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
		if len(names) > 0 {
			out.WriteString("\n" + title + ":\n  " + strings.Join(names, "\n  "))
		}
	}
	differ("public names that the code has and "+file+" lacks", have, listed)
	differ("public names that the code no longer has", listed, have)
	if out.Len() > 0 {
		out.WriteString("\nRun make generate, and review the difference. After the first release, a name that is removed or renamed needs a deprecation " +
			"(the program reads the old name for one release and logs a warning) and an entry in CHANGELOG.md. See docs/contributing/adr/0027-fixed-names.md.")
	}
	return strings.TrimSpace(out.String())
}

// TestComparison: what differs is named, with its direction.
func TestComparison(t *testing.T) {
	got := compare([]string{"flag\ta --old", "metric\tkept"}, []string{"flag\ta --new", "metric\tkept"})
	if added, removed, ok := strings.Cut(got, "no longer has"); !ok || !strings.Contains(added, "--new") || !strings.Contains(removed, "--old") ||
		!strings.Contains(removed, "make generate") || strings.Contains(got, "kept") {
		t.Errorf("%s", got)
	}
	if got := compare([]string{"a\tb"}, []string{"a\tb"}); got != "" {
		t.Errorf("the same lists differ: %s", got)
	}
}

// TestEveryKindHasNames: no part of the sources is overlooked, and each name has the form of its kind.
func TestEveryKindHasNames(t *testing.T) {
	all, err := names.Read(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	count, formed := map[string]int{}, map[string]*regexp.Regexp{
		"flag": regexp.MustCompile(`^(\S+ |\[[^]]+\] )?--([a-z][a-z0-9.-]*\*?|processingStrategy)$`), "variable": regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`),
		"metric": regexp.MustCompile(`^[a-z][a-z0-9_]*$`), "Helm value": regexp.MustCompile(`^[a-z]`),
	}
	for _, line := range all {
		kind, name, _ := strings.Cut(line, "\t")
		count[kind]++
		if form := formed[kind]; form != nil && !form.MatchString(name) {
			t.Errorf("the %s %q has another form than %s", kind, name, form)
		}
	}
	for kind, least := range map[string]int{
		"metric": 200, "metric label": 100, "reason": 300, "key of a label or annotation": 40, "condition": 15, "check": 8, "value": 30, "flag": 250,
		"key": 300, "variable": 10, "Helm value": 400, "alert": 20, "command": 9, "field of -o json": 50, "object": 60, "port": 4, "custom resource": 10,
		"resource of kubectl": 20, "gRPC method": 8, "program": 25,
	} {
		if count[kind] < least {
			t.Errorf("%d names of kind %q, want at least %d", count[kind], kind, least)
		}
	}
}
