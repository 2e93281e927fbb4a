//go:build !crashpoints

package crashpoint_test

import (
	"os/exec"
	"testing"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// TestAReleaseBuildIgnoresTheEnvironment would not survive a kill.
func TestAReleaseBuildIgnoresTheEnvironment(t *testing.T) {
	t.Setenv("NVSENTINEL_CRASH", "svc/observed")
	t.Setenv("NVSENTINEL_FREEZE", "svc/observed")
	t.Setenv("NVSENTINEL_FATAL_TEXT", "fatal")
	t.Setenv("NVSENTINEL_CLOCK", "no such file")
	crashpoint.Here("svc/observed")
	crashpoint.DieOf("fatal")
	wall := clock.RealClock{}
	if crashpoint.Clock(wall) != clock.WithTicker(wall) {
		t.Error("the clock of a build without the tag can be wrong")
	}
}

// TestWithPoints runs the tests of a build that has them.
func TestWithPoints(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-tags", "crashpoints", ".").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
