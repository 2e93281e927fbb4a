// Package repository checks the rules of this repository that no compiler enforces.
package repository

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/tests/mutation"
	"github.com/nvidia/nvsentinel/tests/programs"
)

const root = "github.com/nvidia/nvsentinel/"

// layers lists, per folder, the sibling folders it may import, as docs/contributing/architecture.md has
// them. The tests may import all of them.
func layers(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{"tests": nil}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (`.*|nothing of this repository) \\|$").FindAllStringSubmatch(read(t, "docs/contributing/architecture.md"), -1) {
		out[row[1]] = []string{}
		for _, m := range quoted.FindAllStringSubmatch(row[2], -1) {
			out[row[1]] = append(out[row[1]], m[1])
		}
		out["tests"] = append(out["tests"], row[1])
	}
	return out
}

type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Module       struct{ Path string }
	Doc          string
	Name         string
	GoFiles      []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	all := goList[pkg](t, nil, "-json=ImportPath,Imports,TestImports,XTestImports,Module,Doc,Name,GoFiles", "work")
	if len(all) < 100 {
		t.Fatalf("go list found %d packages: too few to mean anything", len(all))
	}
	return all
}

// goList is what go list -json prints in the repository's root, with more in its environment.
func goList[T any](t *testing.T, env []string, args ...string) (all []T) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	for decode := json.NewDecoder(bytes.NewReader(out)); ; {
		var one T
		if err := decode.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}

// folderOf is the folder of the table that holds an import path.
func folderOf(matrix map[string][]string, path string) string {
	rest, ours := strings.CutPrefix(path, root)
	if !ours {
		return ""
	}
	best := ""
	for m := range matrix {
		if (rest == m || strings.HasPrefix(rest, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

func TestImportMatrix(t *testing.T) {
	matrix := layers(t)
	for _, p := range list(t) {
		from := folderOf(matrix, p.ImportPath)
		allowed, known := matrix[from]
		if !known {
			t.Errorf("package %s is in no folder of docs/contributing/architecture.md", p.ImportPath)
			continue
		}
		for _, imports := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for _, path := range imports {
				to := folderOf(matrix, path)
				if to == "" || to == from || slices.Contains(allowed, to) {
					continue
				}
				t.Errorf("%s imports %s: %s may import only %v", p.ImportPath, path, from, allowed)
			}
		}
	}
}

// TestMonitorsDoNotImportEachOther: what several need lies beside them.
func TestMonitorsDoNotImportEachOther(t *testing.T) {
	monitor := regexp.MustCompile(`^` + root + `health-monitors/([a-z-]+-monitor|labeler|metadata-collector)(/|$)`)
	found := map[string]bool{}
	for _, p := range list(t) {
		from := monitor.FindStringSubmatch(p.ImportPath)
		if from == nil {
			continue
		}
		found[from[1]] = true
		for _, path := range p.Imports {
			if to := monitor.FindStringSubmatch(path); to != nil && to[1] != from[1] {
				t.Errorf("%s imports %s: what they share belongs beside them, as health-monitors/xid", p.ImportPath, path)
			}
		}
	}
	if len(found) < 7 {
		t.Errorf("found the monitors %v alone", found)
	}
}

// TestPackagesBesideInternalArePure: the linter holds each of them to that.
func TestPackagesBesideInternalArePure(t *testing.T) {
	pure, err := mutation.Pure(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	// No services, which programs.Controllers are; wire formats; and what is used from outside, and does something.
	apart := regexp.MustCompile(`^(internal|api|data-models|store-client|csp-plugins|repair-steps|tests)/|/(internal|api|protos)(/|$)|` +
		`^(janitor/gputool|health-monitors/(csp-health-monitor/(announcement|program)|gpu-health-monitor/dcgmsim))$`)
	for _, p := range list(t) {
		if folder := strings.TrimPrefix(p.ImportPath, root); p.Name != "main" && len(p.GoFiles) > 0 && !apart.MatchString(folder) &&
			!slices.Contains(pure, folder) && !slices.Contains(programs.Controllers, folder) {
			t.Errorf("%s is not among the files of rule pure in .golangci.yml: name it there, or move it into internal/", folder)
		}
	}
}

// TestNothingCallsMethodsByName: where a program does, the linker keeps every method of
// every type that it reaches, which with the types of Kubernetes is half of the program.
// Templates are executed by github.com/DataDog/datadog-agent/pkg/template, which is
// text/template without calls of methods.
func TestNothingCallsMethodsByName(t *testing.T) {
	for _, p := range list(t) {
		if strings.HasPrefix(p.ImportPath, root+"tests/") {
			continue
		}
		for _, path := range p.Imports {
			if path == "text/template" || path == "html/template" {
				t.Errorf("%s imports %s: import github.com/DataDog/datadog-agent/pkg/template/text", p.ImportPath, path)
			}
		}
	}
	for name, text := range product(t) {
		if strings.Contains(text, ".MethodByName(") {
			t.Errorf("%s calls MethodByName: give the method a name that the compiler sees", name)
		}
	}
}

func TestEveryPackageHasADocComment(t *testing.T) {
	vague := map[string]bool{"common": true, "util": true, "utils": true, "helper": true, "helpers": true, "types": true, "model": true, "manager": true, "initializer": true}
	for _, p := range list(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		if p.Doc == "" && !strings.HasSuffix(p.ImportPath, "/protos") && !strings.HasSuffix(p.ImportPath, "/csp/v1") {
			t.Errorf("package %s has no package comment", p.ImportPath)
		}
		if vague[p.Name] {
			t.Errorf("package %s: %q says nothing of the domain", p.ImportPath, p.Name)
		}
	}
}
