package reconciler_test

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// TestPauseStopsRepairObjects: none is created while the emergency stop is on, here
// because it was not read yet, and one after that.
func TestPauseStopsRepairObjects(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.Pause = pause.New(fake.NewClientset(), "", slog.New(slog.DiscardHandler))
	_, why, parked := retry.AsPark(b.Handle(t.Context(), b.node))
	if rem := b.record("r1").Status.Remediation; !parked || !strings.Contains(why, "emergency stop") || rem.Attempts[0].UID != "" {
		t.Errorf("parked %v: %q, %+v", parked, why, rem)
	}
	b.Pause = nil
	b.parks(decision.WaitObject)
	b.onlyObject()
}
