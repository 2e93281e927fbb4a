// Package pythonenv has the programs in Python that tests run: services that nobody
// here wrote, and the example of a plugin.
package pythonenv

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Programs is the folder of the programs of an environment, which a script of hack/
// makes. Where the package index is out of reach the test is left out.
func Programs(t *testing.T, script string) string {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join("../../hack", script))
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		t.Logf("%s", &said)
		t.Skipf("no Python package index: what %s installs is not there", script)
	}
	if err != nil {
		t.Fatalf("making the Python environment: %v: %s", err, &said)
	}
	return strings.TrimSpace(out.String())
}
