package reconciler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/internal/reconciler"
	"github.com/nvidia/nvsentinel/store-client/store"
)

func TestDrainANode(t *testing.T) {
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "a"})
	s.pod(localcluster.PodSpec{Name: "b"})
	s.pod(localcluster.PodSpec{Name: "system", Namespace: "kube-system"})
	s.pod(localcluster.PodSpec{Name: "mirror", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}})
	s.fault("r1", "r1")
	s.fault("r2", "r1")
	s.mark("r1")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.wantEviction("r2", record.AlreadyDrained)
	s.wantLabel(nodemark.DrainSucceeded)
	for name, want := range map[string]bool{"a": true, "b": true, "mirror": false} {
		if gone, going := s.leaving(s.ns, name); gone != want || going != want {
			t.Errorf("pod %s: gone %t, going %t, want %t", name, gone, going, want)
		}
	}
	if _, going := s.leaving("kube-system", "system"); going {
		t.Error("the pod of a system namespace was taken away")
	}
	s.eventually(func() error {
		if got := s.events(); !strings.Contains(got, "Normal DrainStarted") || !strings.Contains(got, "Normal DrainSucceeded") {
			return fmt.Errorf("events %q, want DrainStarted and DrainSucceeded", got)
		}
		return nil
	})
	// A fault that comes later finds the node drained.
	s.fault("r3", "r1")
	s.wantEviction("r3", record.AlreadyDrained)
}

func TestADisruptionBudgetIsHonouredNamedAndAwaited(t *testing.T) {
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "web"})
	s.pod(localcluster.PodSpec{Name: "free"})
	s.waitCached(2)
	s.budget("web")
	s.fault("r1", "r1")
	s.mark("r1")
	s.eventually(func() error {
		got := s.eviction("r1")
		if want := "1 of 2 pods left: " + s.ns + "/web (blocked by disruption budget " + s.ns + "/web)"; got.Message != want {
			return fmt.Errorf("progress %q, want %q", got.Message, want)
		}
		return nil
	})
	s.wantLabel(nodemark.Draining)
	s.eventually(func() error {
		if got := s.events(); !strings.Contains(got, "Warning DrainBlocked") {
			return fmt.Errorf("events %q, want DrainBlocked", got)
		}
		return nil
	})
	if _, going := s.leaving(s.ns, "web"); going {
		t.Fatal("the budget was not honoured")
	}
	s.dropBudget("web")
	s.wantEviction("r1", record.EvictionSucceeded)
}

// budget keeps the only pod of a workload, and waits until it does.
func (s *stage) budget(name string) {
	s.t.Helper()
	if _, err := s.cluster.AddPDB(s.t.Context(), s.ns, name, 1); err != nil {
		s.t.Fatal(err)
	}
	s.eventually(func() error {
		pdb, err := s.cluster.Client().PolicyV1().PodDisruptionBudgets(s.ns).Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pdb.Status.ObservedGeneration != pdb.Generation || pdb.Status.ExpectedPods != 1 {
			return fmt.Errorf("the budget %s is not in force", name)
		}
		return nil
	})
}

func (s *stage) dropBudget(name string) {
	s.t.Helper()
	if err := s.cluster.Client().PolicyV1().PodDisruptionBudgets(s.ns).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func TestRecoveryInMidDrain(t *testing.T) {
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "web"})
	s.budget("web")
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantEviction("r1", record.EvictionInProgress)
	s.clear("r1")
	s.release()
	s.wantEviction("r1", record.EvictionCanceled)
	s.dropBudget("web")
	s.handle()
	if _, going := s.leaving(s.ns, "web"); going {
		t.Error("a pod was taken away after the recovery")
	}
	s.wantLabel("")
}

// TestAManualReleaseStopsADrain: the person's uncordon is seen on the Node
// before any record shows it.
func TestAManualReleaseStopsADrain(t *testing.T) {
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "web"})
	s.budget("web")
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantEviction("r1", record.EvictionInProgress)
	s.patch(func(n *corev1.Node) {
		n.Spec.Unschedulable = false
		nodemark.Annotate(n, nodemark.LiftedByAnnotation, "alice")
	})
	// An eviction that was in progress at the release is nobody's fault: the
	// budget holds the pod until every later look knows of the release.
	s.handle()
	s.dropBudget("web")
	s.handle()
	if _, going := s.leaving(s.ns, "web"); going {
		t.Error("a pod was taken away after the release")
	}
	s.quarantine("r1", func(st *record.Status) { st.NodeQuarantined = record.QuarantineCanceled })
	s.wantEviction("r1", record.EvictionCanceled)
}

func TestWaitingPodsWakeTheDrain(t *testing.T) {
	s := newStage(t)
	other := s.cluster.Namespace(t)
	s.pod(localcluster.PodSpec{Name: "job", Namespace: other})
	s.fault("r1", "r1")
	s.mark("r1")
	s.eventually(func() error {
		if got := s.eviction("r1"); !strings.Contains(got.Message, "(may complete)") {
			return fmt.Errorf("progress %q, want that it may complete", got.Message)
		}
		return nil
	})
	if _, going := s.leaving(other, "job"); going {
		t.Fatal("a pod that may complete was taken away")
	}
	if err := s.cluster.Client().CoreV1().Pods(other).Delete(t.Context(), "job", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wantEviction("r1", record.EvictionSucceeded)
	// Every look is the answer to a change: of the record, the Node or the pod.
	// Ten they are, and more while the cache lags behind the Node's other writers.
	if looks := s.records.lists.Load(); looks > 60 {
		t.Errorf("%d reads of the store for a drain of one pod", looks)
	}
}

// TestADrainedNodeIsKeptEmptyUntilItsRepair: also by a drainer that starts
// after the drain.
func TestADrainedNodeIsKeptEmptyUntilItsRepair(t *testing.T) {
	s := newStage(t)
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.restart()
	if _, err := s.cluster.AddPod(t.Context(), localcluster.PodSpec{Namespace: s.ns, Name: "late", Node: s.node}); err != nil {
		t.Fatal(err)
	}
	s.eventually(func() error {
		if gone, _ := s.leaving(s.ns, "late"); !gone {
			return errors.New("the pod that came after the drain is still there")
		}
		return nil
	})
	r, err := s.records.Get(t.Context(), "r1")
	if err != nil {
		t.Fatal(err)
	}
	r.Status.FaultRemediated = record.Yes()
	if _, err := s.records.Update(t.Context(), record.FaultRemediation, []store.Change{{ID: r.ID, Revision: r.Revision, Status: r.Status}}); err != nil {
		t.Fatal(err)
	}
	s.handle()
	s.pod(localcluster.PodSpec{Name: "later"})
	s.handle()
	if _, going := s.leaving(s.ns, "later"); going {
		t.Error("a pod was taken away after the repair")
	}
}

func TestTheDeadlineOutlivesARestart(t *testing.T) {
	s := newStage(t, eviction.NamespaceRule{Name: "test-*", Mode: eviction.DeleteAfterTimeout})
	w := &settableClock{}
	s.clock = w
	s.restart()
	batch := s.cluster.Namespace(t)
	hangs := map[string]string{localcluster.TerminationAnnotation: "never"}
	s.pod(localcluster.PodSpec{Name: "hangs", Namespace: batch, Annotations: hangs})
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantEviction("r1", record.EvictionInProgress)
	if _, going := s.leaving(batch, "hangs"); going {
		t.Fatal("a pod was taken away before the deadline")
	}
	s.stop()
	w.by.Store(int64(2 * time.Hour)) // the deadline passes while nobody runs
	s.restart()
	s.wantEviction("r1", record.EvictionSucceeded)
	if gone, _ := s.leaving(batch, "hangs"); !gone {
		t.Error("the pod is still there")
	}
}

func TestTheNodeThatDoesNotShowItsSessionYet(t *testing.T) {
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "a"})
	s.fault("r1", "r1")
	s.handle()
	if got := s.eviction("r1"); got.Status != record.EvictionUnset {
		t.Errorf("status %q before the Node shows the session, want none", got.Status)
	}
	s.mark("r1")
	s.wantEviction("r1", record.EvictionSucceeded)
}

func TestDryRunWritesNothing(t *testing.T) {
	s := newStage(t)
	s.restart(func(c *reconciler.Config) { c.DryRun = true })
	s.pod(localcluster.PodSpec{Name: "a"})
	s.fault("r1", "r1")
	s.mark("r1")
	before := s.snapshot("r1")
	s.handle()
	if after := s.snapshot("r1"); after != before {
		t.Errorf("a dry run wrote:\nbefore %s\nafter  %s", before, after)
	}
	if _, going := s.leaving(s.ns, "a"); going {
		t.Error("a dry run pod removal requested")
	}
	s.restart(func(c *reconciler.Config) { c.DryRun = false })
	s.wantEviction("r1", record.EvictionSucceeded)
}
