//go:build crashpoints

package crashpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets the test binary be the process that is killed: it goes through
// the points named as arguments and prints each one it survives.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "walk" {
		for _, point := range os.Args[2:] {
			Here(point)
			fmt.Println(point)
		}
		if Sabotaged("svc/skip") {
			fmt.Println("sabotaged")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// walk runs a process through points and returns what it survived and whether
// it was killed.
func walk(t *testing.T, env []string, points ...string) (survived []string, killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"walk"}, points...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if failed {
		status, ok := exit.Sys().(syscall.WaitStatus)
		killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
		if !killed {
			t.Fatalf("the process failed: %v\n%s", err, exit.Stderr)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out)), killed
}

func TestHere(t *testing.T) {
	points := []string{"svc/observed", "svc/done", "svc/observed", "svc/stamped"}
	tests := []struct {
		crash    string
		survived []string
		killed   bool
	}{
		{"", points, false},
		{"svc/other", points, false},
		{"svc/observed", []string{}, true},
		{"svc/observed:2", points[:2], true},
		{"svc/observed:3", points, false},
		{"svc/stamped, svc/done", points[:1], true},
	}
	for _, tt := range tests {
		t.Run(tt.crash, func(t *testing.T) {
			got, killed := walk(t, []string{"NVSENTINEL_CRASH=" + tt.crash}, points...)
			if killed != tt.killed {
				t.Errorf("killed: %v, want %v", killed, tt.killed)
			}
			if diff := cmp.Diff(tt.survived, got); diff != "" {
				t.Errorf("survived (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnceSurvivesRestarts(t *testing.T) {
	env := []string{"NVSENTINEL_CRASH=svc/a,svc/b", "NVSENTINEL_CRASH_ONCE=" + t.TempDir()}
	var lives [][]string
	for range 3 {
		got, killed := walk(t, env, "svc/a", "svc/b", "svc/c")
		lives = append(lives, append(got, fmt.Sprint(killed)))
	}
	want := [][]string{{"true"}, {"svc/a", "true"}, {"svc/a", "svc/b", "svc/c", "false"}}
	if diff := cmp.Diff(want, lives); diff != "" {
		t.Errorf("lives (-want +got):\n%s", diff)
	}
}

func TestTheLogShowsEveryHitAlsoTheLast(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	walk(t, []string{"NVSENTINEL_CRASH=svc/b", "NVSENTINEL_CRASH_LOG=" + log}, "svc/a", "svc/b", "svc/c")
	walk(t, []string{"NVSENTINEL_CRASH_LOG=" + log}, "other/a")
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("svc svc/a\nsvc svc/b\nother other/a\n", string(got)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestSabotaged(t *testing.T) {
	got, _ := walk(t, []string{"NVSENTINEL_SABOTAGE=x/y, svc/skip"})
	if diff := cmp.Diff([]string{"sabotaged"}, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if got, _ := walk(t, nil); len(got) != 0 {
		t.Errorf("without the variable: %v", got)
	}
}
