package house

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/tests/programs"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryModuleHasAFloor: go.work, the floors and the page's table of them have the
// same modules; the Makefile reads go.work.
func TestEveryModuleHasAFloor(t *testing.T) {
	var modules []string
	for _, m := range regexp.MustCompile(`(?m)^\t\./(\S+)$`).FindAllStringSubmatch(read(t, "go.work"), -1) {
		modules = append(modules, m[1])
	}
	if have := slices.Sorted(maps.Keys(floors)); !slices.Equal(have, slices.Sorted(slices.Values(modules))) {
		t.Errorf("the floors are of %v, go.work has %v", have, modules)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (`.*|nothing of ours) \\|$").FindAllStringSubmatch(read(t, "ARCHITECTURE.md"), -1) {
		var allowed []string
		for _, m := range quoted.FindAllStringSubmatch(row[2], -1) {
			allowed = append(allowed, m[1])
		}
		if want := slices.Sorted(slices.Values(floors[row[1]])); !slices.Equal(slices.Sorted(slices.Values(allowed)), want) {
			t.Errorf("ARCHITECTURE.md lets %s import %v, the floors %v", row[1], allowed, want)
		}
		modules = slices.DeleteFunc(modules, func(m string) bool { return m == row[1] })
	}
	if !slices.Equal(modules, []string{"tests"}) {
		t.Errorf("ARCHITECTURE.md has no row of %v", modules)
	}
}

// TestEveryProgramIsBuilt: a program that make build, the tests and the images do not
// know would be found out by nobody.
func TestEveryProgramIsBuilt(t *testing.T) {
	// These make source or pages, or are a part of a test.
	apart := []string{"internal/predecessor/page", "health-monitors/csp-health-monitor/bulletin", "janitor/gpu-reset/testdata/nvidia-smi"}
	built := map[string]bool{}
	for _, p := range programs.Services("", "").Programs {
		built[strings.TrimPrefix(p.Package, "./")] = true
	}
	cmd := exec.Command("go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, "work")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		folder := strings.TrimPrefix(p, root)
		if strings.HasPrefix(folder, "tests/") || path.Base(folder) == "gen" || slices.Contains(apart, folder) {
			continue
		}
		if !built[folder] {
			t.Errorf("%s is a program that tests/programs does not list", folder)
		}
		delete(built, folder)
	}
	if len(built) > 0 {
		t.Errorf("tests/programs lists what is no program: %v", slices.Collect(maps.Keys(built)))
	}
}
