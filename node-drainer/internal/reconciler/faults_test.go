package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/internal/reconciler"
)

// blocked is a drain in progress whose pod a disruption budget holds, after
// the drainer was refused its eviction: "in progress" alone comes before it.
func (s *stage) blocked(id string) {
	s.t.Helper()
	s.pod(localcluster.PodSpec{Name: "web"})
	s.budget("web")
	s.fault(id, id)
	s.mark(id)
	s.eventually(func() error {
		if got := s.eviction(id); got.Status != record.EvictionInProgress || !strings.Contains(got.Message, "blocked by disruption budget") {
			return fmt.Errorf("record %s is %q (%s), want it in progress and blocked", id, got.Status, got.Message)
		}
		return nil
	})
}

// wantStays looks several times and wants the pod untouched.
func (s *stage) wantStays(name, why string) {
	s.t.Helper()
	s.handle()
	if _, going := s.leaving(s.ns, name); going {
		s.t.Fatalf("pod %s was taken away %s", name, why)
	}
}

// TestANodeIsDeletedInMidDrainAndComesBack: the work is parked, not dropped;
// another machine under the name is not touched; the session goes on where the
// Node bears it again.
func TestANodeIsDeletedInMidDrainAndComesBack(t *testing.T) {
	s := newStage(t)
	s.blocked("r1")
	if err := s.cluster.DeleteNode(t.Context(), s.node); err != nil {
		t.Fatal(err)
	}
	// An eviction that was in progress at the deletion is nobody's fault: the
	// budget holds the pod until every later look finds the Node gone.
	s.handle()
	s.dropBudget("web")
	s.wantStays("web", "of a Node that is gone")
	if _, err := s.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: s.node}); err != nil {
		t.Fatal(err)
	}
	s.wantStays("web", "of a Node without the session")
	if got := s.eviction("r1"); got.Status != record.EvictionInProgress {
		t.Errorf("the drain is %q, want it parked", got.Status)
	}
	s.mark("r1")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.wantLabel(nodemark.DrainSucceeded)
}

// TestTheAPIServerIsAwayInMidDrain: nothing is concluded from its silence, a
// recovery is heard from the store, and the rest goes on when it is back.
func TestTheAPIServerIsAwayInMidDrain(t *testing.T) {
	s := newStage(t)
	s.blocked("r1")
	first := s.node
	s.node += "-b"
	if _, err := s.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: s.node}); err != nil {
		t.Fatal(err)
	}
	job := s.cluster.Namespace(t)
	s.pod(localcluster.PodSpec{Name: "job", Namespace: job}) // may complete
	s.fault("r2", "r2")
	s.mark("r2")
	s.wantEviction("r2", record.EvictionInProgress)

	s.cluster.StopAPIServer()
	t.Cleanup(func() {
		if err := s.cluster.StartAPIServer(context.Background()); err != nil {
			t.Error(err)
		}
		if err := s.cluster.DeleteNode(context.Background(), first+"-b"); err != nil {
			t.Error(err)
		}
	})
	s.clear("r2")
	s.wantEviction("r2", record.EvictionCanceled)
	s.node = first
	for range 3 {
		s.handle()
	}
	if got := s.eviction("r1").Status; got != record.EvictionInProgress {
		t.Errorf("the drain is %q while the API server is away", got)
	}
	if err := s.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.dropBudget("web")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.wantLabel(nodemark.DrainSucceeded)
	if _, going := s.leaving(job, "job"); going {
		t.Error("the pod of the node that recovered was taken away")
	}
}

// ice holds the answers to watches back: the caches of who uses it stay as
// they are, everything else goes through.
type ice struct {
	http.RoundTripper
	frozen *sync.RWMutex
}

func (i ice) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := i.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		answer.Body = slow{answer.Body, i.frozen}
	}
	return answer, err
}

type slow struct {
	io.ReadCloser
	frozen *sync.RWMutex
}

func (s slow) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.frozen.RLock()
	defer s.frozen.RUnlock()
	return n, err
}

// freeze makes the drainer's caches stale until the returned function is called.
func (s *stage) freeze() (thaw func()) {
	var frozen sync.RWMutex
	s.wrap = func(rt http.RoundTripper) http.RoundTripper { return ice{rt, &frozen} }
	s.restart()
	s.handle()
	frozen.Lock()
	var once sync.Once
	thaw = func() { once.Do(frozen.Unlock) }
	s.t.Cleanup(thaw)
	return thaw
}

// TestAStaleCacheStillShowsTheSession: the Node was released, the cache does
// not show it, and a fault asks for its pods at once.
func TestAStaleCacheStillShowsTheSession(t *testing.T) {
	s := newStage(t)
	s.ns = s.cluster.Namespace(t) // no rule names it: its pods may complete
	s.pod(localcluster.PodSpec{Name: "job"})
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantEviction("r1", record.EvictionInProgress)
	s.wantLabel(nodemark.Draining)
	thaw := s.freeze()
	s.release()
	s.fault("r2", "r1", func(r *record.Record) { r.Event.DrainOverrides = &record.Override{Force: true} })
	s.wantStays("job", "by a stale cache, after the release")
	thaw()
	s.wantStays("job", "after the release")
	if got := s.eviction("r1"); got.Status != record.EvictionInProgress {
		t.Errorf("the drain is %q, want it to wait for its session", got.Status)
	}
}

// TestAStaleCacheShowsNoPods: pods that the cache does not know end no drain.
func TestAStaleCacheShowsNoPods(t *testing.T) {
	s := newStage(t)
	s.mark("r1")
	thaw := s.freeze()
	s.pod(localcluster.PodSpec{Name: "web"})
	s.budget("web")
	s.fault("r1", "r1")
	s.handle()
	if got := s.eviction("r1"); got.Status == record.EvictionSucceeded {
		t.Fatal("the drain succeeded with a pod there")
	}
	thaw()
	s.eventually(func() error {
		if got := s.eviction("r1"); !strings.Contains(got.Message, "blocked by disruption budget") {
			return fmt.Errorf("progress %q, want the budget named", got.Message)
		}
		return nil
	})
	s.dropBudget("web")
	s.wantEviction("r1", record.EvictionSucceeded)
}

// TestAStaleCacheShowsPodsThatAreGone: they are not hit again under their
// names, and hold the drain only until the cache knows.
func TestAStaleCacheShowsPodsThatAreGone(t *testing.T) {
	s := newStage(t)
	s.blocked("r1")
	thaw := s.freeze()
	s.dropBudget("web")
	// The drainer tries again by itself: it may be faster.
	err := s.cluster.Client().CoreV1().Pods(s.ns).Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	s.eventually(func() error {
		if gone, _ := s.leaving(s.ns, "web"); !gone {
			return errors.New("the pod is still there")
		}
		return nil
	})
	s.handle()
	thaw()
	s.wantEviction("r1", record.EvictionSucceeded)
}

// settableClock is a clock that can be set.
type settableClock struct {
	clock.RealClock
	by atomic.Int64
}

func (s *settableClock) Now() time.Time { return time.Now().Round(0).Add(time.Duration(s.by.Load())) }

func (s *settableClock) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// TestAClockThatJumps: set back, nothing waits for the lost time; set ahead, a
// deadline comes early and nothing else happens.
func TestAClockThatJumps(t *testing.T) {
	s := newStage(t, eviction.NamespaceRule{Name: "test-*", Mode: eviction.DeleteAfterTimeout})
	w := &settableClock{}
	s.clock = w
	s.restart()
	batch := s.cluster.Namespace(t)
	s.pod(localcluster.PodSpec{Name: "job", Namespace: batch})
	s.blocked("r1")
	w.by.Store(int64(-24 * time.Hour))
	s.handle()
	s.dropBudget("web")
	s.eventually(func() error {
		s.loop.Load().Enqueue(s.node)
		if gone, _ := s.leaving(s.ns, "web"); !gone {
			return errors.New("the pod waits for the time that the clock lost")
		}
		return nil
	})
	if _, going := s.leaving(batch, "job"); going {
		t.Error("the deadline came although the clock was reset")
	}
	w.by.Store(int64(24 * time.Hour))
	s.loop.Load().Enqueue(s.node)
	s.wantEviction("r1", record.EvictionSucceeded)
	s.wantLabel(nodemark.DrainSucceeded)
}

// TestOnlyTheGPUsPodsAreDrained on a real API server: the annotation is read
// through the cache and through the list before the end.
func TestOnlyTheGPUsPodsAreDrained(t *testing.T) {
	s := newStage(t)
	s.partial()
	given := func(uuid string) map[string]string {
		return map[string]string{nodemark.DevicesAnnotation: fmt.Sprintf(`{"devices":{"nvidia.com/gpu":[%q]}}`, uuid)}
	}
	s.pod(localcluster.PodSpec{Name: "a", GPUs: 1, Annotations: given("GPU-a")})
	s.pod(localcluster.PodSpec{Name: "b", GPUs: 1, Annotations: given("GPU-b")})
	s.pod(localcluster.PodSpec{Name: "untold", GPUs: 1})
	s.pod(localcluster.PodSpec{Name: "none"})
	s.fault("r1", "r1", func(r *record.Record) {
		r.Event.RecommendedAction = record.ActionComponentReset
		r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: "GPU-a"}}
	})
	s.mark("r1")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.handle()
	for name, want := range map[string]bool{"a": true, "untold": true, "b": false, "none": false} {
		if _, going := s.leaving(s.ns, name); going != want {
			t.Errorf("pod %s: going %t, want %t", name, going, want)
		}
	}
	// The reset is escalated to a reboot: the rest has to go.
	s.write("r1", record.FaultRemediation, func(st *record.Status) {
		st.Remediation = &record.Remediation{Cause: "r1", Action: record.ActionRestartBM}
	})
	s.eventually(func() error {
		for _, name := range []string{"b", "none"} {
			if gone, _ := s.leaving(s.ns, name); !gone {
				return fmt.Errorf("pod %s is still there", name)
			}
		}
		return nil
	})
}

// partial restarts the drainer with the partial drain switched on.
func (s *stage) partial() {
	s.t.Helper()
	s.restart(func(c *reconciler.Config) { c.Policy.Eviction.PartialDrain = true })
}
