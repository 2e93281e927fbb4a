package reconciler_test

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// TestTheBrakeStopsRepairObjects: none is created while the brake is on, here
// because it was not read yet, and one after that.
func TestTheBrakeStopsRepairObjects(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.Brake = brake.New(fake.NewClientset(), "", slog.New(slog.DiscardHandler))
	_, why, parked := retry.AsPark(b.Handle(t.Context(), b.node))
	if rem := b.record("r1").Status.Remediation; !parked || !strings.Contains(why, "emergency stop") || rem.Attempts[0].UID != "" {
		t.Errorf("parked %v: %q, %+v", parked, why, rem)
	}
	b.Brake = nil
	b.parks(decision.WaitObject)
	b.onlyObject()
}
