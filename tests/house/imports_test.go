// Package house checks the rules of the house that no compiler enforces.
package house

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "github.com/nvidia/nvsentinel/"

// floors lists, per module, the sibling modules it may import.
var floors = map[string][]string{
	"data-models":            {},
	"internal":               {"data-models"},
	"store-client":           {"data-models", "internal"},
	"platform-connectors":    {"data-models", "internal", "store-client"},
	"health-monitors":        {"data-models", "internal"},
	"fault-quarantine":       {"data-models", "internal", "store-client"},
	"node-drainer":           {"data-models", "internal", "store-client"},
	"fault-remediation":      {"data-models", "internal", "store-client"},
	"node-health-check":      {"data-models", "internal"},
	"repair-chain":           {"data-models", "internal"},
	"repair-steps":           {"data-models", "internal", "repair-chain"},
	"event-exporter":         {"data-models", "internal", "store-client"},
	"health-events-analyzer": {"data-models", "internal", "store-client"},
	"janitor/protos":         {},
	"janitor":                {"data-models", "internal", "janitor/protos"},
	"csp-plugins":            {"data-models", "internal", "janitor/protos"},
	"cli":                    {"data-models", "internal", "repair-chain", "store-client"},
	"tests": {
		"data-models", "internal", "store-client", "platform-connectors", "health-monitors", "fault-quarantine",
		"node-drainer", "fault-remediation", "health-events-analyzer", "janitor", "janitor/protos", "csp-plugins", "repair-chain",
	},
	// It keeps announced maintenances in the store, by a port of their own.
	"health-monitors/csp-health-monitor": {"data-models", "internal", "store-client"},
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
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Module,Doc,Name,GoFiles", "work")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < len(floors) {
		t.Fatalf("go list found %d packages: too few to mean anything", len(all))
	}
	return all
}

// moduleOf is the module (relative to the root) that holds an import path.
func moduleOf(path string) string {
	rest, ours := strings.CutPrefix(path, root)
	if !ours {
		return ""
	}
	best := ""
	for m := range floors {
		if (rest == m || strings.HasPrefix(rest, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

func TestImportMatrix(t *testing.T) {
	for _, p := range list(t) {
		from := moduleOf(p.ImportPath)
		allowed, known := floors[from]
		if !known {
			t.Errorf("package %s is in no module of the house", p.ImportPath)
			continue
		}
		for _, imports := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for _, path := range imports {
				to := moduleOf(path)
				if to == "" || to == from || slices.Contains(allowed, to) {
					continue
				}
				t.Errorf("%s imports %s: %s may import only %v", p.ImportPath, path, from, allowed)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	vague := map[string]bool{"common": true, "util": true, "utils": true, "helper": true, "helpers": true, "types": true, "model": true, "manager": true, "initializer": true}
	for _, p := range list(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		if p.Doc == "" && !strings.HasSuffix(p.ImportPath, "/protos") && !strings.HasSuffix(p.ImportPath, "/protos/v1") {
			t.Errorf("package %s has no package comment", p.ImportPath)
		}
		if vague[p.Name] {
			t.Errorf("package %s: %q says nothing of the domain", p.ImportPath, p.Name)
		}
	}
}
