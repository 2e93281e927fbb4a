//go:build !crashpoints

package crashpoint_test

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// TestAReleaseBuildIgnoresTheEnvironment would not survive a kill.
func TestAReleaseBuildIgnoresTheEnvironment(t *testing.T) {
	t.Setenv("NVSENTINEL_CRASH", "svc/observed")
	t.Setenv("NVSENTINEL_FREEZE", "svc/observed")
	t.Setenv("NVSENTINEL_SABOTAGE", "svc/skip")
	t.Setenv("NVSENTINEL_CLOCK", "no such file")
	crashpoint.Here("svc/observed")
	if crashpoint.Sabotaged("svc/skip") {
		t.Error("a build without the tag can be sabotaged")
	}
	wall := clock.RealClock{}
	if crashpoint.Clock(wall) != clock.WithTicker(wall) {
		t.Error("the clock of a build without the tag can be wrong")
	}
}
