package faultinjection_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/faultinjection"
	"github.com/nvidia/nvsentinel/tests/overlay"
	"github.com/nvidia/nvsentinel/tests/programs"
)

func root(t *testing.T) string {
	t.Helper()
	root, err := overlay.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestEveryFaultFitsTheSource: each finds its places, and what it makes of the source
// is Go that has the types right.
func TestEveryFaultFitsTheSource(t *testing.T) {
	root := root(t)
	var names []string
	for _, f := range faultinjection.Faults() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			texts, err := overlay.Texts(root, f.Edits)
			if err != nil {
				t.Fatal(err)
			}
			file, err := overlay.Write(t.TempDir(), texts)
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"build"}, programs.Flags("-tags", "crashpoints", "-overlay", file)...)
			for path := range texts {
				args = append(args, filepath.Dir(path))
			}
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		names = append(names, f.Name)
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(names))); len(sorted) != len(names) {
		t.Errorf("a name occurs twice: %v", names)
	}
}

// TestNothingOfItIsInTheProduct: a release cannot be made to misbehave.
func TestNothingOfItIsInTheProduct(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "git", "grep", "-il", "sabotag", "--", "*.go", ":!tests/", ":!*_test.go")
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
		t.Errorf("it is mentioned in %s, %v", out, err)
	}
}

// TestServicesNoticeTheirFaults runs a service's own tests of the sabotaged source, and
// of the sabotaged program where they start one.
func TestServicesNoticeTheirFaults(t *testing.T) {
	testkit.Long(t, "what must notice are tests of the services")
	for _, f := range faultinjection.Faults() {
		if f.Run == "" {
			continue
		}
		t.Run(strings.ReplaceAll(f.Name, "/", "_"), func(t *testing.T) {
			root, dir := root(t), t.TempDir()
			binary, err := f.Build(t.Context(), root, dir, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			built := filepath.Join(dir, "built")
			if err := os.Mkdir(built, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Dir(binary), filepath.Join(built, "crashpoints")); err != nil {
				t.Fatal(err)
			}
			texts, err := overlay.Texts(root, f.Edits)
			if err != nil {
				t.Fatal(err)
			}
			failed, err := overlay.Trial{
				Root: root, Texts: texts, Args: []string{"-timeout=5m", "-run", f.Run, f.Package},
				Env: []string{testkit.Prebuilt + "=" + built},
			}.Notice(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", f.Description, err)
			}
			t.Logf("noticed by %s", strings.Join(failed, ", "))
		})
	}
}
