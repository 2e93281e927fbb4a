package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFlakyAndFailing: a package that fails at first and passes alone lets the
// run pass and is named, with its first failure; one that fails again fails it;
// and so does one that is flaky for the second time.
func TestFlakyAndFailing(t *testing.T) {
	for name, test := range map[string]struct {
		runs string // of the test that pass
		want []bool
	}{
		"flaky":   {"2", []bool{true, true}}, // the second run finds the file that the first one made
		"failing": {"", []bool{false}},
		"again":   {"24", []bool{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), "module example.com/shaky\n\ngo 1.26.0\n")
			write(t, filepath.Join(dir, "shaky_test.go"), shaky)
			t.Chdir(dir)
			t.Setenv("GOWORK", "off")
			t.Setenv("SHAKY_PASSES", test.runs)
			for i, want := range test.want {
				s := session{
					evidence: dir, flaky: filepath.Join(dir, "flaky.txt"), flags: []string{"-short"}, packages: []string{"./..."}, began: time.Now(),
				}
				passed, err := s.run()
				if err != nil || passed != want {
					t.Errorf("run %d passed: %v, %v; want %v", i+1, passed, err, want)
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, "flaky.txt"))
			if name == "failing" {
				if err == nil {
					t.Errorf("a failing test is called flaky: %s", text)
				}
				return
			}
			if !strings.Contains(string(text), "FLAKY example.com/shaky TestShaky") || !strings.Contains(string(text), "run 1 is not to pass") {
				t.Errorf("%v, the file says %q", err, text)
			}
		})
	}
}

// shaky counts its runs in a file and passes in those that SHAKY_PASSES names; at
// run 3 and later in all but the third.
const shaky = `package shaky

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestShaky(t *testing.T) {
	runs, _ := os.ReadFile("runs")
	n := len(runs) + 1
	if err := os.WriteFile("runs", append(runs, '.'), 0o600); err != nil {
		t.Fatal(err)
	}
	passes := os.Getenv("SHAKY_PASSES")
	if !strings.Contains(passes, strconv.Itoa(n)) && !(passes == "2" && n > 2) {
		t.Errorf("run %d is not to pass", n)
	}
}
`

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
