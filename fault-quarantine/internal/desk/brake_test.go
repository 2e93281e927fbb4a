package desk_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// braked is a brake that is on, because it was not read yet.
func braked() *brake.Brake {
	return brake.New(fake.NewClientset(), "", slog.New(slog.DiscardHandler))
}

// TestTheBrakeStopsCordons: no session is opened and no mark added while the
// brake is on; a release goes on, and what was held comes after it.
func TestTheBrakeStopsCordons(t *testing.T) {
	s, nodes := storetest.SQLite(t), &books{node: newNode()}
	d := newDesk(t, s, nodes)
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	d.Brake = braked()
	if _, _, parked := outcome.AsPark(d.Handle(t.Context(), "n1")); !parked || nodes.patches > 0 {
		t.Errorf("parked %v, %d patches", parked, nodes.patches)
	}
	if r := storetest.MustGet(t, s, f.ID); r.Reason() != record.Held || !strings.Contains(r.Status.QuarantineVerdict.Detail, "emergency brake") {
		t.Errorf("%s: %+v", r.Reason(), r.Status.QuarantineVerdict)
	}
	d.Brake = nil
	boom := errors.New("the API server is away")
	crashing := newDesk(t, s, patchFails{nodes, boom})
	if err := crashing.Handle(t.Context(), "n1"); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	d.Brake = braked() // the verdict is written, the mark is not
	if _, why, parked := outcome.AsPark(d.Handle(t.Context(), "n1")); !parked || nodes.patches > 0 || !strings.Contains(why, "emergency brake") {
		t.Errorf("parked %v: %q, %d patches", parked, why, nodes.patches)
	}
	d.Brake = nil
	handle(t, d)
	if !nodes.node.Spec.Unschedulable {
		t.Error("not marked after the brake was let go")
	}
	d.Brake = braked()
	storetest.MustAppend(t, s, event(2, true, ""))
	handle(t, d)
	if nodes.node.Spec.Unschedulable {
		t.Error("the brake holds a release")
	}
}
