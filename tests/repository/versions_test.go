package repository

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/controlplane"
	"github.com/nvidia/nvsentinel/internal/gobuild"
)

// TestControlPlaneVersionsMatch: what the local control plane and the
// services both need has one version, so that it is compiled once. Modules of
// Kubernetes have the version of their replacement.
func TestControlPlaneVersionsMatch(t *testing.T) {
	plane, err := controlplane.Builder{}.Batch()
	if err != nil {
		t.Fatal(err)
	}
	ours := versions(t, gobuild.Batch{Dir: filepath.Join("..", ".."), Only: []string{"work"}})
	theirs := versions(t, plane)
	shared := 0
	for module, version := range ours {
		if theirs[module] == "" {
			continue
		}
		shared++
		if theirs[module] != version {
			t.Errorf("%s is %s in the workspace and %s in hack/controlplane", module, version, theirs[module])
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules are shared: too few to mean anything", shared)
	}
}

// versions are those of the modules whose packages are compiled.
func versions(t *testing.T, b gobuild.Batch) map[string]string {
	t.Helper()
	packages := b.Only
	for _, p := range b.Programs {
		packages = append(packages, p.Package)
	}
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}{{end}}`
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", format}, packages...)...)
	cmd.Dir = b.Dir
	cmd.Env = append(cmd.Environ(), b.Env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v", b.Dir, err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if module, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			found[module] = version
		}
	}
	return found
}
