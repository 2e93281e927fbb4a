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
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestMain lets the test binary be the process that is killed: it goes through
// the points named as arguments and prints each one it survives.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "walk" {
		for _, point := range os.Args[2:] {
			Here(point)
			DieOf(point)
			fmt.Println(point)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// passPoints runs a process through points and returns what it survived and whether
// it was killed.
func passPoints(t *testing.T, env []string, points ...string) (survived []string, killed bool) {
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
			got, killed := passPoints(t, []string{"NVSENTINEL_CRASH=" + tt.crash}, points...)
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
	var runs [][]string
	for range 3 {
		got, killed := passPoints(t, env, "svc/a", "svc/b", "svc/c")
		runs = append(runs, append(got, fmt.Sprint(killed)))
	}
	want := [][]string{{"true"}, {"svc/a", "true"}, {"svc/a", "svc/b", "svc/c", "false"}}
	if diff := cmp.Diff(want, runs); diff != "" {
		t.Errorf("lives (-want +got):\n%s", diff)
	}
}

func TestTheLogShowsEveryHitAlsoTheLast(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	passPoints(t, []string{"NVSENTINEL_CRASH=svc/b", "NVSENTINEL_CRASH_LOG=" + log}, "svc/a", "svc/b", "svc/c")
	passPoints(t, []string{"NVSENTINEL_CRASH_LOG=" + log}, "other/a")
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("svc svc/a\nsvc svc/b\nother other/a\n", string(got)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestDieOf(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "walk", "svc/a", "svc/fatal/b", "svc/c")
	cmd.Env = append(os.Environ(), "NVSENTINEL_FATAL_TEXT=fatal")
	out, err := cmd.Output()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed || !strings.Contains(string(exit.Stderr), "a crash test: svc/fatal/b") || string(out) != "svc/a\n" {
		t.Errorf("survived %q, %v", out, err)
	}
	if got, killed := passPoints(t, nil, "svc/fatal/b"); len(got) != 1 || killed {
		t.Errorf("without the variable: %v, killed %v", got, killed)
	}
}

// TestFreeze stops a process at its point, and only the first of two.
func TestFreeze(t *testing.T) {
	env := append(os.Environ(), "NVSENTINEL_FREEZE=svc/b", "NVSENTINEL_CRASH_ONCE="+t.TempDir())
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), os.Args[0], "walk", "svc/a", "svc/b", "svc/c")
	cmd.Env, cmd.Stdout = env, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process did not stop: %v, %v", status, err)
	}
	if got, killed := passPoints(t, env, "svc/b"); len(got) != 1 || killed {
		t.Errorf("another process at the same point: %v, killed %v", got, killed)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "svc/a\nsvc/b\nsvc/c\n" {
		t.Errorf("after it was let go: %v, %q", err, out.String())
	}
}

func TestClockJumpsWhileItsFileExists(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "off")
	c := clockFor(clocktesting.NewFakeClock(noon), func(string) string { return file })
	for _, tc := range []struct {
		off  string
		want time.Duration
	}{{"", 0}, {"-1h\n", -time.Hour}, {"90s", 90 * time.Second}} {
		if tc.off != "" {
			if err := os.WriteFile(file, []byte(tc.off), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if now, since := c.Now().Sub(noon), c.Since(noon); now != tc.want || since != tc.want {
			t.Errorf("off by %q: now is noon%+v, noon is since %v", tc.off, now, since)
		}
	}
	now := time.Now()
	for _, by := range []time.Duration{time.Hour, -8 * time.Hour, time.Second} {
		wrong := set(now, by)
		if wall, mono := wrong.Round(0).Sub(now.Round(0)), wrong.Sub(now); wall != by || mono != 0 {
			t.Errorf("set by %s: the wall time moved by %s, the monotonic one by %s", by, wall, mono)
		}
	}
	plain := clocktesting.NewFakeClock(noon)
	if clockFor(plain, func(string) string { return "" }) != plain {
		t.Error("without the variable the clock is not the one given")
	}
}
