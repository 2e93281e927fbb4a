package reconciler_test

import (
	"log/slog"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/pause"
)

// TestPauseStopsEvictions: no pod goes while the emergency stop is on, here because it
// was not read yet, and the drain goes on after that.
func TestPauseStopsEvictions(t *testing.T) {
	s := newStage(t)
	s.pause = pause.New(fake.NewClientset(), "", slog.New(slog.DiscardHandler))
	s.restart()
	s.pod(localcluster.PodSpec{Name: "web"})
	s.waitCached(1)
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantEviction("r1", record.EvictionInProgress)
	s.handle()
	if _, going := s.leaving(s.ns, "web"); going {
		t.Error("a pod was taken away")
	}
	s.pause = nil
	s.restart()
	s.wantEviction("r1", record.EvictionSucceeded)
}
