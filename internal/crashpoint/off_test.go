//go:build !crashpoints

package crashpoint_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// TestAReleaseBuildIgnoresTheEnvironment would not survive a kill.
func TestAReleaseBuildIgnoresTheEnvironment(t *testing.T) {
	t.Setenv("NVSENTINEL_CRASH", "svc/observed")
	t.Setenv("NVSENTINEL_SABOTAGE", "svc/skip")
	crashpoint.Here("svc/observed")
	if crashpoint.Sabotaged("svc/skip") {
		t.Error("a build without the tag can be sabotaged")
	}
}
