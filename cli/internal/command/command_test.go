package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// answer is what a run printed and how it ended.
type answer struct {
	code     int
	out, err string
}

// run runs a command line against what the test gives, and nothing else.
func run(t *testing.T, p command.Program, args ...string) answer {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	var out, errs bytes.Buffer
	p.Out, p.Err, p.Clock = &out, &errs, clock.RealClock{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	code := p.Run(ctx, args)
	return answer{code, out.String(), errs.String()}
}

// expect compares an answer: its code, and pieces of its two texts.
func (a answer) expect(t *testing.T, code int, out, errs string) {
	t.Helper()
	if a.code != code || !strings.Contains(a.out, out) || !strings.Contains(a.err, errs) {
		t.Errorf("exit code %d, want %d with %q on the output, %q on the errors; got\n%s\n%s", a.code, code, out, errs, a.out, a.err)
	}
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		message string
	}{
		{[]string{"wy", "gpu-1"}, `unknown command "wy"`},
		{[]string{"why"}, "usage: nvsentinel why <node> [flags], arguments given: 0"},
		{[]string{"why", "a", "b"}, "usage: nvsentinel why <node> [flags], arguments given: 2"},
		{[]string{"clear", "gpu-1"}, "usage: nvsentinel clear <node> <record> [flags], arguments given: 1"},
		{[]string{"pause", "now"}, `unknown command "now"`},
		{[]string{"status", "a"}, `unknown command "a"`},
		{[]string{"status", "--colour"}, "unknown flag: --colour"},
		{[]string{"status", "-o", "yaml"}, `--output "yaml" is not text or json`},
		{[]string{"status", "--timezone", "Mars/North"}, "--timezone: unknown time zone Mars/North"},
		{[]string{"status", "--timeout", "0s"}, "--timeout 0s is not positive"},
		{[]string{"status", "--limit", "0"}, "--limit is 0: must be at least 1"},
	} {
		a := run(t, command.Program{}, tt.args...)
		a.expect(t, command.ExitUsage, "", tt.message)
		if a.out != "" {
			t.Errorf("%v wrote to the output: %s", tt.args, a.out)
		}
	}
}

// TestDocumentedExitCodes: --help and docs/reference/cli.md describe the same codes.
func TestDocumentedExitCodes(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--help"}, {"why", "--help"}, {"status", "--help"}} {
		help := run(t, command.Program{}, args...)
		help.expect(t, command.ExitComplete, "Exit codes:", "")
		_, codes, _ := strings.Cut(help.out, "Exit codes:\n")
		codes, _, _ = strings.Cut(codes, "\n\n")
		lines := strings.Split(strings.TrimSpace(codes), "\n")
		if len(lines) != 5 {
			t.Fatalf("%v: %d exit codes documented:\n%s", args, len(lines), codes)
		}
		for _, line := range lines {
			code, meaning, _ := strings.Cut(strings.TrimSpace(line), "  ")
			row := "| " + code + " | " + meaning + " |"
			if !strings.Contains(strings.ReplaceAll(string(page), "`", ""), row) {
				t.Errorf("docs/reference/cli.md has no row %q", row)
			}
		}
	}
}

func TestPluginName(t *testing.T) {
	run(t, command.Program{Name: "/usr/bin/kubectl-nvsentinel"}, "--help").expect(t, 0, "kubectl nvsentinel [command]", "")
	run(t, command.Program{Name: "/usr/bin/kubectl-nvsentinel"}, "x").expect(t, command.ExitUsage, "", "kubectl nvsentinel: unknown command")
	run(t, command.Program{Name: "bin/nvsentinel"}, "--help").expect(t, 0, "nvsentinel [command]", "")
}

// TestPasswordStays: no help and no error shows the address.
func TestPasswordStays(t *testing.T) {
	p := command.Program{Store: "postgres://u:hunter2@127.0.0.1:1/d"}
	for _, args := range [][]string{{"--help"}, {"status", "--help"}, {"status"}, {"why", "n"}} {
		if a := run(t, p, args...); strings.Contains(a.out+a.err, "hunter2") {
			t.Errorf("%v shows the password:\n%s%s", args, a.out, a.err)
		}
	}
}

func TestNothingReadable(t *testing.T) {
	for _, args := range [][]string{{"why", "gpu-1"}, {"status"}, {"status", "-o", "json"}} {
		a := run(t, command.Program{}, args...)
		a.expect(t, command.ExitFailed, "", "reading store: opening the store: no address is set (--store, NVSENTINEL_STORE), and a gateway cannot be reached without the API server: ")
		a.expect(t, command.ExitFailed, "", "reading API server: ")
		if a.out != "" {
			t.Errorf("%v wrote to the output: %s", args, a.out)
		}
	}
}

// decode reads a JSON answer.
func decode[T timeline.Timeline | timeline.Fleet | timeline.Trace](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.out), &v); err != nil {
		t.Fatalf("%v in\n%s\n%s", err, a.out, a.err)
	}
	return v
}
