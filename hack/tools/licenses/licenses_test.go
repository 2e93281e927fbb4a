package licenses

import (
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// lay lays out a module cache, a Go installation and a repository.
func lay(t *testing.T, files ...string) Finder {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append([]string{"go/LICENSE", "go/PATENTS", "source/LICENSE", "source/NOTICE", "source/main.go", "cache/x"}, files...) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Finder{Cache: filepath.Join(dir, "cache"), Go: filepath.Join(dir, "go"), Source: filepath.Join(dir, "source")}
}

func program(deps ...*debug.Module) *debug.BuildInfo {
	return &debug.BuildInfo{Main: debug.Module{Path: "example.com/main", Version: "(devel)"}, Deps: deps}
}

func TestFiles(t *testing.T) {
	f := lay(t, "cache/example.com/!upper@v1.0.0/LICENSE.md", "cache/example.com/!upper@v1.0.0/license.go", "cache/example.com/!upper@v1.0.0/licenses/x",
		"cache/example.com/new@v2.0.0/COPYING", "cache/example.com/new@v2.0.0/NOTICE.txt", "cache/example.com/new@v2.0.0/README.md")
	got, err := f.Files(program(
		&debug.Module{Path: "example.com/Upper", Version: "v1.0.0"},
		&debug.Module{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/new", Version: "v2.0.0"}},
		&debug.Module{Path: "example.com/main/api", Version: "(devel)"},
	))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"licenses/example.com/Upper/LICENSE.md", "licenses/example.com/main/LICENSE", "licenses/example.com/main/NOTICE",
		"licenses/example.com/new/COPYING", "licenses/example.com/new/NOTICE.txt", "licenses/std/LICENSE", "licenses/std/PATENTS",
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if text, err := os.ReadFile(got["licenses/example.com/Upper/LICENSE.md"]); err != nil || string(text) != "cache/example.com/!upper@v1.0.0/LICENSE.md" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestAModuleWithoutALicenseIsAnError(t *testing.T) {
	f := lay(t, "cache/example.com/none@v1.0.0/README.md")
	for name, want := range map[string]string{"example.com/none": "has no license file", "example.com/absent": "reading the licenses of example.com/absent"} {
		if _, err := f.Files(program(&debug.Module{Path: name, Version: "v1.0.0"})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := os.RemoveAll(f.Go); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.Go, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Files(program()); err == nil || !strings.Contains(err.Error(), "go.dev") {
		t.Errorf("without a license of Go: %v", err)
	}
}
