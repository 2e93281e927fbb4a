package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/internal/controlplane"
)

// modules are stand-ins for what the control plane is built from, by module and main packages.
var modules = map[string][]string{
	"go.etcd.io/etcd/server/v3": {"."},
	"k8s.io/kubernetes":         {"cmd/kube-apiserver", "cmd/kube-controller-manager", "cmd/kube-scheduler", "cmd/kubectl"},
	"sigs.k8s.io/kwok":          {"cmd/kwok"},
}

// fakeRepository makes a repository whose control plane is a few tiny programs.
func fakeRepository(t *testing.T, program string) string {
	t.Helper()
	root := t.TempDir()
	write := func(text string, path ...string) {
		file := filepath.Join(append([]string{root, "hack", "controlplane"}, path...)...)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mod := "module fake\n\ngo 1.26.0\n"
	for module, packages := range modules {
		folder := filepath.Base(filepath.Dir(module)) + "-" + filepath.Base(module)
		version := "v1.2.3"
		if strings.HasSuffix(module, "/v3") {
			version = "v3.2.1"
		}
		mod += fmt.Sprintf("require %s %s\nreplace %s => ./%s\n", module, version, module, folder)
		write("module "+module+"\n", folder, "go.mod")
		for _, pkg := range packages {
			write(program, folder, pkg, "main.go")
		}
	}
	write(mod, "go.mod")
	write("", "go.sum")
	return root
}

func TestBuildOncePerMachine(t *testing.T) {
	root, cache := fakeRepository(t, "package main\n\nfunc main() { println(\"built\") }\n"), t.TempDir()
	var (
		group    sync.WaitGroup
		progress [2]bytes.Buffer
		bins     [2]controlplane.Binaries
		errs     [2]error
	)
	for i := range bins {
		group.Go(func() {
			b := controlplane.Builder{Root: root, Cache: cache, Progress: &progress[i]}
			bins[i], errs[i] = b.Build(t.Context())
		})
	}
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if bins[0] != bins[1] {
		t.Errorf("two builds differ: %v, %v", bins[0], bins[1])
	}
	output := progress[0].String() + progress[1].String()
	if got := strings.Count(output, "control plane: built in"); got != 1 {
		t.Errorf("it was built %d times, want once\n%s", got, output)
	}
	if !strings.Contains(output, "programs: 5") {
		t.Errorf("said %q", output)
	}
	if out, err := exec.Command(bins[0].Kwok).CombinedOutput(); err != nil || string(out) != "built\n" {
		t.Errorf("running a built program: %q, %v", out, err)
	}
	if key := filepath.Base(filepath.Dir(bins[0].Etcd)); !strings.HasPrefix(key, "kubernetes-v1.2.3_etcd-v3.2.1_kwok-v1.2.3_") {
		t.Errorf("version key %q", key)
	}

	var again bytes.Buffer
	b := controlplane.Builder{Root: root, Cache: cache, Progress: &again}
	if _, err := b.Build(t.Context()); err != nil || again.Len() != 0 {
		t.Errorf("a build of what is there: %v, said %q", err, again.String())
	}
	path, err := b.BuildKubectl(t.Context())
	if err != nil || !strings.Contains(again.String(), "programs: 1") {
		t.Errorf("building kubectl: %v, said %q", err, again.String())
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestFailedBuildKeepsNothing(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx     context.Context
		program string
		want    string
	}{
		"broken source": {t.Context(), "package main\n\nfunc main() { nonsense() }\n", "undefined: nonsense"},
		"cancelled":     {cancelled, "package main\n\nfunc main() {}\n", "context canceled"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := controlplane.Builder{Root: fakeRepository(t, test.program), Cache: t.TempDir()}
			if _, err := b.Build(test.ctx); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			built, err := filepath.Glob(filepath.Join(b.Cache, "*", "[a-z]*"))
			if err != nil || len(built) != 0 {
				t.Errorf("left in the cache: %v, %v", built, err)
			}
		})
	}
}

func TestBuildNeedsTheRepository(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := (controlplane.Builder{}).Build(t.Context()); err == nil || !strings.Contains(err.Error(), "go.work") {
		t.Errorf("building outside of the repository: %v", err)
	}
}
