package reconciler_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestADrainSurvivesACrashAnywhere kills the real process at each place of its
// handler, in each of the first passes, and lets another finish the drain. Each
// on its own node with its own store, so that they wait side by side.
func TestADrainSurvivesACrashAnywhere(t *testing.T) {
	binary := drainer(t)
	for _, place := range []string{"observed", "decided", "done", "stamped"} {
		for hit := 1; hit <= 4; hit++ {
			t.Run(fmt.Sprintf("%s:%d", place, hit), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.stop()
				s.pod(localcluster.PodSpec{Name: "a"})
				s.pod(localcluster.PodSpec{Name: "b"})
				s.fault("r1", "r1")
				s.fault("r2", "r1")
				s.mark("r1")
				s.crash(binary, fmt.Sprintf("node-drainer/%s:%d", place, hit))
				s.restart()
				s.wantEviction("r1", record.EvictionSucceeded)
				s.wantEviction("r2", record.AlreadyDrained)
				s.wantLabel(nodemark.DrainSucceeded)
				for _, name := range []string{"a", "b"} {
					if gone, _ := s.leaving(s.ns, name); !gone {
						t.Errorf("the drain succeeded with pod %s there", name)
					}
				}
			})
		}
	}
}

// crash runs the process until it kills itself. If it finishes the drain before,
// a pod that comes back makes it look again.
func (s *stage) crash(binary, point string) {
	s.t.Helper()
	process := exec.CommandContext(s.t.Context(), binary, s.arguments()...)
	process.Env = append(os.Environ(), "NVSENTINEL_CRASH="+point)
	var log strings.Builder
	process.Stderr = &log
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	late := time.AfterFunc(3*time.Minute, func() { _ = process.Process.Signal(os.Interrupt) })
	defer late.Stop()
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	err, over := error(nil), false
	for back := false; !over; {
		select {
		case err = <-ended:
			over = true
		case <-time.After(50 * time.Millisecond):
			if !back && s.eviction("r1").Status == record.EvictionSucceeded {
				back = true
				if _, err := s.cluster.AddPod(s.t.Context(), localcluster.PodSpec{Namespace: s.ns, Name: "back", Node: s.node}); err != nil {
					s.t.Fatal(err)
				}
			}
		}
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Exited() {
		s.t.Fatalf("the process was to be killed at %s, it ended with %v:\n%s", point, err, log.String())
	}
}

// built is the binary with crash points, made once.
var built = sync.OnceValues(func() (string, error) { return testkit.Controller(scratch, "node-drainer") })

func drainer(t *testing.T) string {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// arguments of a drainer process of this stage.
func (s *stage) arguments() []string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "node-drainer.toml")
	text := fmt.Sprintf("[[userNamespaces]]\nname = %q\nmode = \"Immediate\"\n", s.ns)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return []string{"--config", file, "--store", s.dsn, "--single-host", "--kubeconfig", s.cluster.AdminKubeconfig(), "--metrics-address", "off"}
}
