package reconciler

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/pause"
)

// TestPauseStopsSignals: none is sent while the emergency stop is on, here because it
// was not read yet, and one after that; no attempt is used up meanwhile.
func TestPauseStopsSignals(t *testing.T) {
	w := newWorld(t)
	w.addNode(localcluster.NodeSpec{Name: "n"})
	w.quarantine("n", "s1")
	w.create("r", "n", "s1")
	w.janitor.Pause = pause.New(fake.NewClientset(), "", slog.New(slog.DiscardHandler))
	for range 2 {
		result, _, err := w.reconcile("r")
		if err != nil || result.RequeueAfter != w.janitor.Pause.Wait() {
			t.Errorf("again in %s, %v", result.RequeueAfter, err)
		}
	}
	w.wantSignals(0)
	w.janitor.Pause = nil
	w.mustReconcile("r")
	w.wantSignals(1)
}

// TestAnUnknownSessionIsCountedOnce: an object that waits for it is counted when it
// begins to, and not at every pass.
func TestAnUnknownSessionIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	w.addNode(localcluster.NodeSpec{Name: "n"})
	w.quarantine("n", "s1")
	w.annotate("n", map[string]any{nodemark.UnknownAnnotation: "f1"})
	w.create("r", "n", "s1")
	for range 2 {
		w.mustReconcile("r")
	}
	w.wantSignals(0)
	if n := testutil.ToFloat64(w.janitor.Metrics.actions.WithLabelValues(w.kind.action, statusSessionUnknown)); n != 1 {
		t.Errorf("counted %v times", n)
	}
}
