package gobuild

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// module makes a module with two programs that share a package.
func module(t *testing.T) Batch {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.com/built\n\ngo 1.26.0\n",
		"said/said.go":     "package said\n\nconst Said = \"built\"\n",
		"one/v3/main.go":   "package main\n\nimport \"example.com/built/said\"\n\nfunc main() { println(said.Said) }\n",
		"more/two/main.go": "package main\n\nimport \"example.com/built/said\"\n\nfunc main() { println(said.Said) }\n",
		"two/main.go":      "package main\n\nimport \"example.com/built/said\"\n\nfunc main() { println(said.Said) }\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Batch{
		Title: "example", Dir: dir, Env: []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="}, Out: filepath.Join(t.TempDir(), "out"),
		Programs: []Program{{Name: "first", Package: "example.com/built/one/v3"}, {Name: "two", Package: "example.com/built/two"}, {Name: "more/two", Package: "example.com/built/more/two"}},
	}
}

func TestBuild(t *testing.T) {
	for name, once := range map[string]bool{"always": false, "once": true} {
		t.Run(name, func(t *testing.T) {
			b := module(t)
			b.Once = once
			var output bytes.Buffer
			if err := (Builder{Progress: &output}).Build(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for _, p := range b.Programs {
				if out, err := exec.Command(filepath.Join(b.Out, p.Name)).CombinedOutput(); err != nil || string(out) != "built\n" {
					t.Errorf("%s: %q, %v", p.Name, out, err)
				}
			}
			for _, want := range []string{"packages are needed", "example: built in", "programs: 3"} {
				if !strings.Contains(output.String(), want) {
					t.Errorf("nothing said of %q:\n%s", want, &output)
				}
			}
			if left, err := filepath.Glob(filepath.Join(b.Out, ".building-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if got := len(b.Lacking()); (got == 0) != once {
				t.Errorf("%d programs lack after the build", got)
			}
			output.Reset()
			if err := os.Remove(filepath.Join(b.Out, "two")); err != nil {
				t.Fatal(err)
			}
			if err := (Builder{Progress: &output}).Build(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if want := "programs: 1"; once && !strings.Contains(output.String(), want) {
				t.Errorf("built more than what was lacking:\n%s", &output)
			}
			entries, err := os.ReadDir(b.Out)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), ".") {
					names = append(names, e.Name())
				}
			}
			if want := []string{"first", "more", "two"}; !slices.Equal(names, want) {
				t.Errorf("after the second build there are %v, want %v", names, want)
			}
		})
	}
}

func TestNothingLackingIsSilent(t *testing.T) {
	b := module(t)
	b.Once, b.Dir = true, "does-not-exist"
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range b.Programs {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(b.Out, p.Name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.Out, p.Name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var output bytes.Buffer
	if err := (Builder{Progress: &output}).Build(t.Context(), b); err != nil || output.Len() > 0 {
		t.Errorf("%v, said %q", err, &output)
	}
}

func TestBuildFails(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	for name, test := range map[string]struct {
		ctx    context.Context
		broken string
		want   []string
	}{
		"broken source":  {t.Context(), "package said\n\nconst Said = nonsense\n", []string{"building example", "undefined: nonsense"}},
		"missing import": {t.Context(), "package said\n\nimport _ \"example.com/none\"\n\nconst Said = \"\"\n", []string{"finding the packages of example", "example.com/none"}},
		"cancelled":      {cancelled, "package said\n\nconst Said = \"\"\n", []string{"enough"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := module(t)
			if err := os.WriteFile(filepath.Join(b.Dir, "said", "said.go"), []byte(test.broken), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Builder{}.Build(test.ctx, b)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
		})
	}
}

func TestCount(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	var output bytes.Buffer
	c := newCount(&output, clock)
	c.logProgress("fetching sources")
	c.fetched()
	c.fetched()
	clock.Step(12 * time.Second)
	c.logProgress("fetching sources")
	c.found([]string{"a", "b", "c"})
	c.found([]string{"b", "c", "d"})
	for _, line := range []string{"a", "# a", "go: something", "b", "b"} {
		c.compiling(line)
	}
	clock.Step(time.Minute)
	c.logProgress("services")
	want := "      0s  fetching sources\n     12s  fetching sources: 2 modules\n   1m12s  services: compiled 2 of 4 packages\n"
	if output.String() != want || c.total() != 4 || c.done() != 2 {
		t.Errorf("said\n%s%d of %d; want\n%s", &output, c.done(), c.total(), want)
	}
}

func TestHearLines(t *testing.T) {
	var heard []string
	long := strings.Repeat("x", 2*tailBytes)
	output := hearLines(strings.NewReader("one\n"+long+"\nend"), func(line string) { heard = append(heard, line) })
	if !slices.Equal(heard, []string{"one", long, "end"}) {
		t.Errorf("heard %d lines", len(heard))
	}
	if len(output) > tailBytes || !bytes.HasSuffix(output, []byte("\nend")) {
		t.Errorf("kept %d bytes", len(output))
	}
}

func TestBinaryOf(t *testing.T) {
	for pkg, want := range map[string]string{
		"./cli/nvsentinel": "nvsentinel", "go.etcd.io/etcd/server/v3": "server", "example.com/v": "v", "example.com/vet": "vet",
	} {
		if got := binaryOf(pkg); got != want {
			t.Errorf("%s: %s, want %s", pkg, got, want)
		}
	}
}

func TestOnlyCompile(t *testing.T) {
	b := module(t)
	b.Programs, b.Only = nil, []string{"./..."}
	var output bytes.Buffer
	if err := (Builder{Progress: &output}).Build(t.Context(), b); err != nil || !strings.Contains(output.String(), "example: built in") {
		t.Errorf("%v, said\n%s", err, &output)
	}
	if _, err := os.Stat(b.Out); err == nil {
		t.Error("something was built")
	}
	if err := os.WriteFile(filepath.Join(b.Dir, "said", "said_test.go"), []byte("package said\n\nvar _ = nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Builder{}).Build(t.Context(), b); err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("error %v of a test that does not compile", err)
	}
}
