// Package pythonenv provides the Python programs that tests run: third-party services, and the
// example plugin.
package pythonenv

import (
	"bytes"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// Programs is the folder of the programs of an environment, which a script of hack/
// makes. Where the package index is out of reach the test is left out.
func Programs(t *testing.T, script string) string {
	t.Helper()
	var out, output bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join("../../hack", script))
	cmd.Stdout, cmd.Stderr = &out, &output
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		t.Logf("%s", &output)
		t.Skipf("no Python package index: what %s installs is not there", script)
	}
	if err != nil {
		t.Fatalf("making the Python environment: %v: %s", err, &output)
	}
	return strings.TrimSpace(out.String())
}

// Serve runs a server until the test ends, and returns once it answers 200 to a GET of
// that URL. Its output is logged if the test fails.
func Serve(t *testing.T, ready string, cmd *exec.Cmd) {
	t.Helper()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := testkit.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), &output)
		}
	})
	testkit.Until(t, 2*time.Minute, func() bool {
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ready, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(ask)
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}
