package repository

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

// TestEveryFolderOfTheTableExists: TestImportMatrix finds what the table lacks.
func TestEveryFolderOfTheTableExists(t *testing.T) {
	for folder := range layers(t) {
		if _, err := os.Stat(filepath.Join("..", "..", folder)); err != nil {
			t.Errorf("docs/contributing/architecture.md has a row for %s: %v", folder, err)
		}
	}
}

// TestLeases: what a program leads by, RBAC lets its account take.
func TestLeases(t *testing.T) {
	given := map[string]bool{}
	for _, m := range regexp.MustCompile(`resources: \[leases\], resourceNames: \[(\S+)\]`).FindAllStringSubmatch(read(t, "distros/helm/nvsentinel/manifests/rbac.yaml"), -1) {
		given[m[1]] = true
	}
	leads := regexp.MustCompile(`(?:consumer\.Lead\(d, .*Task: |cfg\.Lease\.Lead\(d, .*)"(\w+)"`)
	for _, p := range list(t) {
		for _, file := range p.GoFiles {
			folder := strings.TrimPrefix(p.ImportPath, root)
			for _, m := range leads.FindAllStringSubmatch(read(t, path.Join(folder, file)), -1) {
				lease := path.Base(strings.TrimSuffix(folder, "/program")) + "-" + m[1]
				if !given[lease] {
					t.Errorf("%s leads by Lease %s, which manifests/rbac.yaml gives to nobody", folder, lease)
				}
				delete(given, lease)
			}
		}
	}
	if len(given) > 0 {
		t.Errorf("manifests/rbac.yaml gives Leases by which nobody leads: %v", slices.Collect(maps.Keys(given)))
	}
}

// TestEveryProgramIsBuilt: a program that make build, the tests and the images do not
// know would be found out by nobody.
func TestEveryProgramIsBuilt(t *testing.T) {
	// These make source or pages, are a part of a test, or an example.
	apart := []string{"health-monitors/csp-health-monitor/bulletin", "janitor/gpu-reset/testdata/nvidia-smi", "platform-connectors/internal/fleet", "examples/go-plugin", "csp-plugins/node/e2e/node-reboot"}
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

// TestEveryProgramHasAnImage: make images knows every program that is built, and no other.
func TestEveryProgramHasAnImage(t *testing.T) {
	var want, have []string
	for _, p := range programs.Services("", "").Programs {
		want = append(want, p.Package)
	}
	for _, m := range regexp.MustCompile(`(?m)^[a-z-]+ +(\./\S+)`).FindAllStringSubmatch(read(t, "hack/tools/images/images.txt"), -1) {
		have = append(have, strings.Split(m[1], ",")...)
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("hack/tools/images/images.txt has\n%v, tests/programs\n%v", have, want)
	}
}
