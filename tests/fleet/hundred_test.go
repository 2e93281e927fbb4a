package fleet

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

const (
	chainedNodes = 20
	runsOfEach   = 5 // one after the other: the janitor reboots a node once at a time
	shipped      = "collect-reboot-validate"
)

// TestAHundredChains: the chain of the examples does a hundred runs on the cluster of the
// demo, with its real janitor, plugin and Job controller, while each life of repair-chain
// ends behind its ninth object or its 24th write of a run, whichever comes first, wherever
// in whichever of its runs that is. Each step's object was made once, no node was rebooted
// more often than it had runs (a RebootNode that was taken up before another one's boot
// needs none), and each validation is of the boot that its own run brought.
func TestAHundredChains(t *testing.T) {
	testkit.Long(t, "repair-chain TestKilled, internal/work TestRunHistories; TestAChain for the whole way of a fault")
	b := startHundred(t)
	seen := b.watchSlots(batchv1.SchemeGroupVersion.WithResource("jobs"), rebootNodes)
	for i := range chainedNodes * runsOfEach {
		run := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"nodeName": fmt.Sprintf("gpu-%d", i%chainedNodes), "chain": shipped,
			"fault": map[string]any{"record": fmt.Sprintf("record-%d", i), "action": "RESTART_BM", "errorCode": []any{"79"}},
		}}}
		run.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.RunKind))
		run.SetName(fmt.Sprintf("run-%d", i))
		if _, err := b.fleet.Cluster.Dynamic().Resource(repairRuns).Create(t.Context(), run, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	runs := b.succeeded(chainedNodes * runsOfEach)
	for i := range runs {
		b.attributed(&runs[i])
	}
	for i := range chainedNodes {
		node := fmt.Sprintf("gpu-%d", i)
		if n, err := b.fleet.Reboots(node); n < 1 || n > runsOfEach || err != nil {
			t.Errorf("%s was rebooted %d times for %d runs, %v", node, n, runsOfEach, err)
		}
	}
	seen.once(t, chainedNodes*runsOfEach*4)
	if deaths := b.fleet.Service(RepairChain).Starts() - 1; deaths < chainedNodes*runsOfEach/4 {
		t.Errorf("repair-chain died %d times in %d runs", deaths, chainedNodes*runsOfEach)
	}
}

func startHundred(t *testing.T) *pauseSuite {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard, "-tags", "crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Nodes: chainedNodes, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, RebootTime: 500 * time.Millisecond,
		Runs: func(service, _ string) bool {
			return service == "janitor" || service == "csp-plugin-kwok" || service == RepairChain
		},
		Env: func(name, _ string) []string {
			if name != RepairChain {
				return nil
			}
			return []string{"NVSENTINEL_CRASH=" + RepairChain + "/created:9," + RepairChain + "/kept:24"}
		},
	}
	for _, name := range []string{"reboot-and-validate", "collect-logs", "validate", "ticket", shipped} {
		o.Chains = append(o.Chains, filepath.Join(root, "examples/repair-chains", name+".yaml"))
	}
	f, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs("", 30))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &pauseSuite{t, f, map[string]int{}}
}

// succeeded waits until every run has, and gives them.
func (ps *pauseSuite) succeeded(n int) (runs []v1alpha1.RepairRun) {
	ps.Helper()
	testkit.Until(ps, 15*time.Minute, func() bool {
		list, err := ps.fleet.Cluster.Dynamic().Resource(repairRuns).List(ps.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		runs = runs[:0]
		for _, x := range list.Items {
			var run v1alpha1.RepairRun
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(x.Object, &run); err != nil {
				ps.Fatal(err)
			}
			done := slices.ContainsFunc(run.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == v1alpha1.ConditionSucceeded && c.Status == metav1.ConditionTrue
			})
			if done {
				runs = append(runs, run)
			}
		}
		return len(runs) == n
	})
	return runs
}

// attributed: the validation's input in the run's status is the output of its own reboot, and so
// is that of the Job on the node.
func (ps *pauseSuite) attributed(run *v1alpha1.RepairRun) {
	ps.Helper()
	steps := map[string]v1alpha1.StepStatus{}
	for _, s := range run.Status.Steps {
		steps[s.Name] = s
	}
	for name, want := range map[string]v1alpha1.StepState{"collect": v1alpha1.StepDone, "driver": v1alpha1.StepDone, "reboot": v1alpha1.StepDone, "validate": v1alpha1.StepDone, "ticket": v1alpha1.StepSkipped} {
		if steps[name].State != want {
			ps.Fatalf("%s: step %s is %s, want %s", run.Name, name, steps[name].State, want)
		}
	}
	reboot, err := ps.fleet.Cluster.Dynamic().Resource(rebootNodes).Get(ps.Context(), steps["reboot"].Object.Name, metav1.GetOptions{})
	if err != nil {
		ps.Fatal(err)
	}
	boot, _, _ := unstructured.NestedString(reboot.Object, "status", "observedBootID")
	validate, err := ps.fleet.Cluster.Client().BatchV1().Jobs(steps["validate"].Object.Namespace).Get(ps.Context(), steps["validate"].Object.Name, metav1.GetOptions{})
	if err != nil {
		ps.Fatal(err)
	}
	env := validate.Spec.Template.Spec.Containers[0].Env[0]
	if boot == "" || env.Name != "BOOT_ID" || env.Value != boot || steps["validate"].Inputs[0].Digest != steps["reboot"].Outputs[0].Digest {
		ps.Errorf("%s: the reboot brought %s, the validation is of %+v; %+v, %+v", run.Name, boot, env, steps["reboot"].Outputs, steps["validate"].Inputs)
	}
}

// slots are the uids of the objects that were ever seen, by the slot that they fill.
type slots struct {
	// of names the slot that an object fills; empty is none.
	of   func(*unstructured.Unstructured) string
	mu   sync.Mutex
	uids map[string]map[string]bool
}

// watchSlots sees the objects of some kinds from now on.
func (ps *pauseSuite) watchSlots(kinds ...schema.GroupVersionResource) *slots {
	ps.Helper()
	return ps.watchUIDs(func(o *unstructured.Unstructured) string { return o.GetAnnotations()[artifact.SlotAnnotation] }, kinds...)
}

// watchNames has each name of a kind be a slot.
func (ps *pauseSuite) watchNames(kinds ...schema.GroupVersionResource) *slots {
	ps.Helper()
	return ps.watchUIDs(func(o *unstructured.Unstructured) string { return o.GetKind() + " " + o.GetName() }, kinds...)
}

func (ps *pauseSuite) watchUIDs(of func(*unstructured.Unstructured) string, kinds ...schema.GroupVersionResource) *slots {
	ps.Helper()
	s := &slots{of: of, uids: map[string]map[string]bool{}}
	ctx, cancel := context.WithCancel(ps.Context())
	var watches sync.WaitGroup
	ps.Cleanup(func() { cancel(); watches.Wait() })
	for _, kind := range kinds {
		watches.Go(func() { s.watch(ctx, ps.fleet.Cluster.Dynamic().Resource(kind)) })
	}
	return s
}

func (s *slots) watch(ctx context.Context, objects dynamic.ResourceInterface) {
	for ctx.Err() == nil {
		w, err := objects.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok || s.of(o) == "" {
				continue
			}
			s.mu.Lock()
			slot := s.of(o)
			if s.uids[slot] == nil {
				s.uids[slot] = map[string]bool{}
			}
			s.uids[slot][string(o.GetUID())] = true
			s.mu.Unlock()
		}
		w.Stop()
	}
}

// once: each slot was filled by one object, and there were so many.
func (s *slots) once(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.uids) != want {
		t.Errorf("%d slots were filled, want %d", len(s.uids), want)
	}
	for slot, uids := range s.uids {
		if len(uids) != 1 {
			t.Errorf("slot %s was filled by %d objects", slot, len(uids))
		}
	}
}
