package reconciler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/node-drainer/internal/reconciler"
)

// ownedBy names a pod's controller; a UID of its own for each name. The kind is none that
// the API server serves, or the garbage collector would delete the pod.
func ownedBy(apiVersion, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
}

// wantEvent waits for an Event of this service about the node with all of the words.
func (s *stage) wantEvent(words ...string) {
	s.t.Helper()
	s.eventually(func() error {
		events, err := s.cluster.Client().CoreV1().Events("default").List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + s.node})
		if err != nil {
			return err
		}
		var all []string
		for _, e := range events.Items {
			text := e.Type + " " + e.Reason + ": " + e.Message
			if e.Source.Component == "nvsentinel-node-drainer" && hasAll(text, words) {
				return nil
			}
			all = append(all, text)
		}
		return fmt.Errorf("no Event with %q among %q", words, all)
	})
}

func hasAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func (s *stage) wantProgress(id string, words ...string) {
	s.t.Helper()
	s.eventually(func() error {
		if got := s.eviction(id); !hasAll(got.Message, words) {
			return fmt.Errorf("record %s is %q: %q, want %q", id, got.Status, got.Message, words)
		}
		return nil
	})
}

// TestAPodUnderSeveralBudgets: the API server answers 500, whatever the budgets allow.
// They are named, and the drain goes on when all but one are gone.
func TestAPodUnderSeveralBudgets(t *testing.T) {
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "web"})
	s.pod(localcluster.PodSpec{Name: "free"})
	s.waitCached(2)
	s.budget("web")
	first, err := s.cluster.Client().PolicyV1().PodDisruptionBudgets(s.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second := first.DeepCopy()
	second.ObjectMeta = metav1.ObjectMeta{Namespace: s.ns, Name: "web-2"}
	if _, err := s.cluster.Client().PolicyV1().PodDisruptionBudgets(s.ns).Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantProgress("r1", "blocked by having 2 disruption budgets", s.ns+"/web", s.ns+"/web-2")
	s.wantEvent("Warning DrainBlocked", "several disruption budgets", s.ns+"/web, "+s.ns+"/web-2")
	s.dropBudget("web-2")
	s.wantProgress("r1", "(blocked by disruption budget "+s.ns+"/web)")
	s.dropBudget("web")
	s.wantEviction("r1", record.EvictionSucceeded)
}

// TestAFinalizerHoldsAPod: the drain ends without the pod, and reports that.
func TestAFinalizerHoldsAPod(t *testing.T) {
	s := newStage(t)
	s.restart(func(c *reconciler.Config) {
		c.Policy.Eviction.Grace, c.Policy.Eviction.NotReady = time.Second, time.Second
	})
	s.pod(localcluster.PodSpec{Name: "held", Finalizers: []string{"example.com/hold"}})
	t.Cleanup(func() { s.dropFinalizers("held") })
	s.waitCached(1)
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.wantProgress("r1", "left to the remediation: "+s.ns+"/held (not terminated after its grace period)")
	s.wantEvent("Warning PodsLeftToRepair", s.ns+"/held")
	if gone, going := s.leaving(s.ns, "held"); gone || !going {
		t.Errorf("the pod is gone: %t, going: %t; want it held by its finalizer", gone, going)
	}
}

func (s *stage) dropFinalizers(name string) {
	pods := s.cluster.Client().CoreV1().Pods(s.ns)
	_, err := pods.Patch(s.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && s.t.Context().Err() == nil {
		s.t.Error(err)
	}
}

// TestOwnerKindsDecideWhereNoRuleNamesTheNamespace: a Slurm worker is evicted, a pod that
// never completes and may hold work is waited for, with a report.
func TestOwnerKindsDecideWhereNoRuleNamesTheNamespace(t *testing.T) {
	s := newStage(t)
	s.ns = s.cluster.Namespace(t) // no rule names it
	s.pod(localcluster.PodSpec{Name: "worker", Owners: ownedBy("slinky.slurm.net/v1beta1", "NodeSet", "slurm")})
	s.pod(localcluster.PodSpec{Name: "notebook", Owners: ownedBy("apps.kruise.io/v1beta1", "StatefulSet", "nb")})
	s.pod(localcluster.PodSpec{Name: "train", Owners: ownedBy("kubeflow.org/v1", "PyTorchJob", "train")})
	s.waitCached(3)
	s.fault("r1", "r1")
	s.mark("r1")
	s.wantProgress("r1", "2 of 3 pods left", "/notebook (may complete, but the pods of a StatefulSet never do)", "/train (may complete)")
	s.wantEvent("Warning DrainBlocked", "StatefulSet")
	for name, want := range map[string]bool{"worker": true, "notebook": false, "train": false} {
		if _, going := s.leaving(s.ns, name); going != want {
			t.Errorf("pod %s: going %t, want %t", name, going, want)
		}
	}
}

// TestControllerThatRecreatesItsPod: a stand-in for a controller of an unknown kind makes
// the next pod whenever one is gone. After three evictions it is left alone, in the
// record and so for the repair and for the next drainer; its workload is not.
func TestControllerThatRecreatesItsPod(t *testing.T) {
	s := newStage(t)
	quick := func(c *reconciler.Config) {
		c.Policy.Backoff, c.Policy.MaxBackoff, c.Policy.Eviction.Grace = 50*time.Millisecond, 50*time.Millisecond, time.Second
	}
	s.restart(quick)
	s.pod(localcluster.PodSpec{Name: "web"})
	s.budget("web")
	agent := func(n int) localcluster.PodSpec {
		return localcluster.PodSpec{Name: fmt.Sprintf("agent-%d", n), Owners: ownedBy("example.com/v1", "NodeAgent", s.node)}
	}
	s.pod(agent(0))
	s.waitCached(2)
	s.fault("r1", "r1")
	s.mark("r1")
	for n := range 3 {
		s.eventually(func() error {
			if gone, _ := s.leaving(s.ns, agent(n).Name); !gone {
				return fmt.Errorf("%s is still there: %s", agent(n).Name, s.eviction("r1").Message)
			}
			return nil
		})
		s.add(agent(n + 1))
	}
	s.eventually(func() error {
		if got := s.eviction("r1").LeftAlone; got != "uid-"+s.node {
			return fmt.Errorf("left alone %q, want %q", got, "uid-"+s.node)
		}
		return nil
	})
	s.wantEvent("Warning PodsLeftAlone", s.ns+"/agent-3 (NodeAgent)")
	s.restart(quick)
	s.wantProgress("r1", "1 of 2 pods left: "+s.ns+"/web (blocked by disruption budget "+s.ns+"/web)")
	s.dropBudget("web")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.wantProgress("r1", "ignored because their controllers recreate them", s.ns+"/agent-3 (NodeAgent)")
	s.handle()
	if _, going := s.leaving(s.ns, agent(3).Name); going {
		t.Error("the agent was evicted once more")
	}
}
