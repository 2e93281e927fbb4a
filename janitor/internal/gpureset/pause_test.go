package gpureset

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/pause"
)

// mustReconcile is a pass that must end well.
func (w *world) mustReconcile(name string) {
	w.t.Helper()
	if _, died, err := w.reconcile(name); err != nil || died {
		w.t.Fatalf("pass over %s: %v", name, err)
	}
}

// TestPause: no service is taken off a node and no Job created while the emergency stop is
// on, here because it was not read yet; services that are off come back under it.
func TestPause(t *testing.T) {
	w := newWorld(t)
	w.addNode(localcluster.NodeSpec{Name: "n"})
	w.label("n", map[string]any{"nvidia.com/gpu.deploy.dcgm": "true"})
	w.operate("n", true)
	w.create("r", "n", "")
	on := pause.New(fake.NewClientset(), "", slog.New(slog.DiscardHandler))
	w.janitor.Pause = on
	for range 2 {
		result, _, err := w.reconcile("r")
		if err != nil || result.RequeueAfter != on.Wait() {
			t.Errorf("again in %s, %v", result.RequeueAfter, err)
		}
	}
	if down := downOf(w.node("n")); down != "" {
		t.Errorf("the services were taken off for %s", down)
	}
	w.janitor.Pause = nil
	w.mustReconcile("r")
	w.operate("n", true)
	w.janitor.Pause = on
	w.mustReconcile("r")
	if w.job("r") != nil || downOf(w.node("n")) == "" {
		t.Errorf("job %v under the brake, or the services are not off", w.job("r"))
	}
	w.clock.Step(w.policy.TeardownTimeout)
	w.mustReconcile("r")
	if node := w.node("n"); downOf(node) != "" || node.Labels["nvidia.com/gpu.deploy.dcgm"] != "true" {
		t.Errorf("the services are not back: %v", node.Labels)
	}
}

// TestAJobThatIsRefused: what the API server never takes is not tried for long, and
// the services come back at once.
func TestAJobThatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.addNode(localcluster.NodeSpec{Name: "n"})
	w.create("r", "n", "")
	w.janitor.Tool.Image = "" // invalid
	w.mustReconcile("r")
	s := w.object("r").Status
	if s.Phase != v1alpha1.GPUResetFailed || s.Result == nil || s.Result.Reason != v1alpha1.ReasonResetJobCreationFailed || downOf(w.node("n")) != "" {
		t.Errorf("it ended as %+v", s)
	}
	failures := w.janitor.Resets.failures.WithLabelValues(v1alpha1.ReasonResetJobCreationFailed)
	if n := testutil.ToFloat64(failures); n != 1 {
		t.Errorf("%v failures were counted", n)
	}
}
