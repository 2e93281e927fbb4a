package dcgmsim_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmsim"
)

// TestBuildWithAnEmptyModuleCache: a fresh machine has not downloaded go-dcgm yet.
func TestBuildWithAnEmptyModuleCache(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "file://"+filepath.Join(strings.TrimSpace(string(out)), "cache", "download"))
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw") // or the folder could not be removed
	dir := t.TempDir()
	if err := dcgmsim.Build(t.Context(), dir); errors.Is(err, dcgmsim.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "libdcgm.so.4")); err != nil {
		t.Error(err)
	}
}

// TestBuildWithoutACompiler: no gcc, and one that lacks the C library's headers, are
// the reason that callers may accept; a gcc that is killed, and a go that fails, are not.
func TestBuildWithoutACompiler(t *testing.T) {
	for name, c := range map[string]struct {
		programs map[string]string
		accepted bool
	}{
		"no gcc":                     {accepted: true},
		"gcc that compiles nothing":  {programs: map[string]string{"gcc": "echo 'pthread.h: No such file' >&2; exit 1"}, accepted: true},
		"gcc that is killed":         {programs: map[string]string{"gcc": "kill -9 $$"}},
		"gcc that works, no headers": {programs: map[string]string{"gcc": "exit 0", "go": "echo 'no network' >&2; exit 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			for program, script := range c.programs {
				if err := os.WriteFile(filepath.Join(path, program), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", path)
			if err := dcgmsim.Build(t.Context(), t.TempDir()); err == nil || errors.Is(err, dcgmsim.ErrNoCompiler) != c.accepted {
				t.Errorf("Build: %v; is ErrNoCompiler: want %t", err, c.accepted)
			}
		})
	}
}
