package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestWithoutCgo: the program builds and checks its configuration. When started, it reports
// what it lacks.
func TestWithoutCgo(t *testing.T) {
	path, err := testkit.Binary(t.TempDir(), ".") // built with CGO_ENABLED=0
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--node-name=n1", "--metrics-address=off", "--state-dir=" + t.TempDir(), "--platform-connector-socket=" + filepath.Join(t.TempDir(), "socket"),
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{append([]string{"-check-config"}, args...), 0, "valid"},
		{[]string{"-check-config"}, 2, "node-name"},
		{[]string{"-check-config", "--node-name=n1", "--processingStrategy=process"}, 2, "PERSIST_ONLY"},
		{[]string{"-check-config", "--node-name=n1", "--processing-strategy=PERSIST_ONLY", "--dcgm-mode=embedded"}, 0, "valid"},
		{[]string{"-check-config", "--node-name=n1", "--dcgm-mode=local-managed"}, 2, `"local-managed": must be one of remote, embedded`},
		{args, 2, "without cgo"},
		{[]string{"dcgm-worker"}, 2, ""},
	} {
		cmd := exec.Command(path, c.args...)
		cmd.Env = os.Environ()
		out, err := cmd.CombinedOutput()
		code := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: status %d\n%s", c.args, code, out)
		}
	}
}
