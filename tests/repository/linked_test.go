package repository

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/tests/programs"
)

// linkedList is the checked-in list: a module of others on each line, and the programs
// that link packages of it, or "all but" those that do not.
const linkedList = "linked.txt"

// dependency is a package as go list -deps prints it.
type dependency struct {
	ImportPath string
	Imports    []string
	Module     *struct{ Path string }
}

// TestLinkedModules: what a program links beyond this repository is known. A new line or
// name in the list is a decision, which a reviewer sees; NVSENTINEL_WRITE_PAGES=1 writes it.
func TestLinkedModules(t *testing.T) {
	have := linked(t)
	text := format(have)
	if os.Getenv("NVSENTINEL_WRITE_PAGES") != "" {
		if err := os.WriteFile(linkedList, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(linkedList)
	if err != nil {
		t.Fatal(err)
	}
	// The programs of a line would fill the screen: git diff shows them once it is written.
	is, was := strings.Split(text, "\n"), strings.Split(string(want), "\n")
	for _, line := range is {
		if module, _, _ := strings.Cut(line, ":"); !slices.Contains(was, line) {
			t.Errorf("%s is not true for module %s: write it with NVSENTINEL_WRITE_PAGES=1 and look at the difference", linkedList, module)
		}
	}
	for _, line := range was {
		if module, _, _ := strings.Cut(line, ":"); !slices.Contains(is, line) && !strings.Contains(text, module+":") {
			t.Errorf("%s has module %s, which no program links any more: write it with NVSENTINEL_WRITE_PAGES=1", linkedList, module)
		}
	}
}

// TestForbiddenPackagesAreNotLinked: no entry of the list may break these rules.
func TestForbiddenPackagesAreNotLinked(t *testing.T) {
	have := linked(t)
	writers := []string{
		"cli/nvsentinel", "nvsentinel-controller", "platform-connectors",
		"csp-plugins/aws/csp-health-monitor-aws", "csp-plugins/azure/csp-health-monitor-azure", "csp-plugins/gcp/csp-health-monitor-gcp", "csp-plugins/oci/csp-health-monitor-oci",
	}
	rules := []struct {
		what, prefix string
		may          []string
	}{
		{"a database driver", "github.com/jackc/pgx", writers},
		{"a database driver", "go.mongodb.org/mongo-driver", writers},
		{"a database driver", "modernc.org/sqlite", writers},
		// log-collector uploads to what speaks S3, which many stores do.
		{"a cloud's SDK", "github.com/aws/", []string{"csp-plugins/aws", "csp-plugins/aws/csp-health-monitor-aws", "repair-steps/log-collector"}},
		{"a cloud's SDK", "github.com/Azure/", []string{"csp-plugins/azure", "csp-plugins/azure/csp-health-monitor-azure"}},
		{"a cloud's SDK", "cloud.google.com/", []string{"csp-plugins/gcp", "csp-plugins/gcp/csp-health-monitor-gcp"}},
		{"a cloud's SDK", "github.com/oracle/", []string{"csp-plugins/oci", "csp-plugins/oci/csp-health-monitor-oci"}},
		{"DCGM's bindings", "github.com/NVIDIA/go-dcgm", []string{"health-monitors/gpu-health-monitor"}},
	}
	for _, rule := range rules {
		found := 0
		for module, programs := range have {
			if !strings.HasPrefix(module, rule.prefix) {
				continue
			}
			found++
			for _, program := range programs {
				if !slices.Contains(rule.may, program) {
					t.Errorf("%s links %s, %s: only %v may", program, module, rule.what, rule.may)
				}
			}
		}
		if found == 0 {
			t.Errorf("no program links %s: the rule looks for what is not there", rule.prefix)
		}
	}
}

// linked is each module of others, and which programs link packages of it.
func linked(t *testing.T) map[string][]string {
	t.Helper()
	args := []string{"-deps", "-tags=grpcnotrace", "-json=ImportPath,Imports,Module"}
	var names []string
	for _, p := range programs.Services("", "").Programs {
		args, names = append(args, p.Package), append(names, strings.TrimPrefix(p.Package, "./"))
	}
	packages := map[string]dependency{}
	for _, d := range goList[dependency](t, []string{"CGO_ENABLED=1", "GOOS=linux", "GOARCH=amd64"}, args...) {
		packages[d.ImportPath] = d
	}
	modules := map[string][]string{}
	for _, name := range names {
		for module := range reached(packages, root+name) {
			modules[module] = append(modules[module], name)
		}
	}
	return modules
}

// reached are the modules of others of which a program links a package.
func reached(packages map[string]dependency, program string) map[string]bool {
	modules, seen := map[string]bool{}, map[string]bool{program: true}
	for next := []string{program}; len(next) > 0; {
		p := packages[next[0]]
		next = next[1:]
		if p.Module != nil && !strings.HasPrefix(p.Module.Path+"/", root) {
			modules[p.Module.Path] = true
		}
		for _, path := range p.Imports {
			if !seen[path] {
				seen[path], next = true, append(next, path)
			}
		}
	}
	return modules
}

// format writes the programs of each module or, where these are fewer, those that do not
// link it.
func format(modules map[string][]string) string {
	var all []string
	for _, p := range programs.Services("", "").Programs {
		all = append(all, strings.TrimPrefix(p.Package, "./"))
	}
	var out strings.Builder
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		word, list := "", slices.Clone(modules[module])
		if others := slices.DeleteFunc(slices.Clone(all), func(p string) bool { return slices.Contains(list, p) }); len(others) < len(list) {
			word, list = "all but ", others
		}
		if len(list) == 0 {
			word = "all"
		}
		slices.Sort(list)
		fmt.Fprintf(&out, "%s: %s%s\n", module, word, strings.Join(list, " "))
	}
	return out.String()
}
