package reconciler

import (
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

// ofCheck is a run as a NodeHealthCheck makes it: for a node, and under a name that is
// not the node's where annotated.
func ofCheck(name, node, chain string) *v1alpha1.RepairRun {
	run := runOfChain(name, chain)
	run.Spec.NodeName = ""
	run.OwnerReferences = []metav1.OwnerReference{{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "check", UID: "check"}}
	if node != name {
		run.Annotations = map[string]string{v1alpha1.NodeNameAnnotation: node}
	}
	return run
}

func (o *office) tasks() dynamic.ResourceInterface {
	return o.cluster.Dynamic().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "tasks"})
}

// task waits for the object of a run's step.
func (o *office) task(run *v1alpha1.RepairRun, step string) (task *unstructured.Unstructured) {
	o.Helper()
	testkit.Until(o, waitTimeout, func() bool {
		if err := o.live.Get(o.Context(), client.ObjectKeyFromObject(run), run); err != nil {
			return false
		}
		var err error
		task, err = o.tasks().Get(o.Context(), chain.ObjectName(run, step), metav1.GetOptions{})
		return err == nil
	})
	return task
}

// done sets in the status of a task whether it is done.
func (o *office) done(task *unstructured.Unstructured, status string) {
	o.Helper()
	task.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Done", "status": status}}}
	if _, err := o.tasks().UpdateStatus(o.Context(), task, metav1.UpdateOptions{}); err != nil {
		o.Fatal(err)
	}
}

// keep has a finalizer keep a task, as the janitor's keeps a RebootNode.
func (o *office) keep(task *unstructured.Unstructured, on bool) {
	o.Helper()
	patch := `{"metadata":{"finalizers":["example.com/held"]}}`
	if !on {
		patch = `{"metadata":{"finalizers":null}}`
	}
	if _, err := o.tasks().Patch(o.Context(), task.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		o.Fatal(err)
	}
}

func (o *office) delete(run *v1alpha1.RepairRun) {
	o.Helper()
	if err := o.live.Delete(o.Context(), run); err != nil {
		o.Fatal(err)
	}
}

func (o *office) waitDeleted(run *v1alpha1.RepairRun) {
	o.Helper()
	testkit.Until(o, waitTimeout, func() bool {
		return apierrors.IsNotFound(o.live.Get(o.Context(), client.ObjectKeyFromObject(run), run))
	})
}

// ended waits for the end of a run with a reason.
func (o *office) ended(run *v1alpha1.RepairRun, status metav1.ConditionStatus, reason string) {
	o.Helper()
	o.waitForCondition(run, func() []metav1.Condition { return run.Status.Conditions }, v1alpha1.ConditionSucceeded, status, "")
	if c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); c.Reason != reason {
		o.Errorf("%s ended with %s: %s; want %s", run.Name, c.Reason, c.Message, reason)
	}
	if meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionProcessing) {
		o.Errorf("%s is at work after its end", run.Name)
	}
}

// twoTasks is a chain whose second step follows on the first, on the test's own name.
func (o *office) twoTasks(name string) string {
	t := template(name, `{"apiVersion":"example.com/v1","kind":"Task","spec":{"nodeName":"{{ .NodeName }}"}}`)
	t.Spec.ArtifactTracing = &v1alpha1.ArtifactTracing{HealthRule: v1alpha1.HealthRule{SingleConditionType: "Done"}}
	o.make(t, chainOf(name, v1alpha1.Step{Name: "one", Template: name}, v1alpha1.Step{Name: "two", Template: name}))
	return name
}

// TestARunOfANodeHealthCheck: it is for the node that its annotation names, and stays
// for it; it is kept after its end until the check removes it.
func TestARunOfANodeHealthCheck(t *testing.T) {
	o := open(t, time.Nanosecond)
	run := ofCheck("checked-run-1234", "checked-node", o.twoTasks("checked"))
	o.make(run)
	task := o.task(run, "one")
	if node, _, _ := unstructured.NestedString(task.Object, "spec", "nodeName"); node != "checked-node" || run.Status.NodeName != node {
		t.Errorf("the object is for %q, the run for %q", node, run.Status.NodeName)
	}
	run.Annotations[v1alpha1.NodeNameAnnotation] = "another-node"
	if err := o.live.Patch(t.Context(), run, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"remediation.medik8s.io/node-name":"another-node"}}}`))); err != nil {
		t.Fatal(err)
	}
	o.done(task, "True")
	second := o.task(run, "two")
	if node, _, _ := unstructured.NestedString(second.Object, "spec", "nodeName"); node != "checked-node" {
		t.Errorf("the second object is for %q", node)
	}
	o.done(second, "True")
	o.ended(run, metav1.ConditionTrue, v1alpha1.ReasonDone)
	testkit.Until(t, waitTimeout, func() bool {
		return o.live.Get(t.Context(), client.ObjectKeyFromObject(run), run) == nil && len(run.Finalizers) == 0
	})
	person := runOfChain("checked-person", "checked-nothing")
	o.make(person)
	o.waitDeleted(person) // of a later time than the check's, which is still there
	if err := o.live.Get(t.Context(), client.ObjectKeyFromObject(run), run); err != nil {
		t.Errorf("the check's run: %v", err)
	}
	o.delete(run)
	o.waitDeleted(run)
}

// TestARunForNoNode is for the node it is named after if a NodeHealthCheck owns it, and
// else for none.
func TestARunForNoNode(t *testing.T) {
	o := open(t, 0)
	steps := o.twoTasks("unnamed")
	stray, named := runOfChain("unnamed-stray", steps), ofCheck("unnamed-node", "unnamed-node", steps)
	stray.Spec.NodeName, stray.Annotations = "", map[string]string{v1alpha1.NodeNameAnnotation: "unnamed-node"}
	o.make(stray, named)
	o.ended(stray, metav1.ConditionFalse, v1alpha1.ReasonNodeUnnamed)
	o.task(named, "one")
	if named.Status.NodeName != "unnamed-node" {
		t.Errorf("the run is for %q", named.Status.NodeName)
	}
}

// TestAbandonedRun: the NodeHealthCheck gives up the run. The object of the step that is
// under way gets the annotation, and nothing begins although that step comes to its end.
func TestAbandonedRun(t *testing.T) {
	o := open(t, 0)
	run := ofCheck("givenup-node", "givenup-node", o.twoTasks("givenup"))
	o.make(run)
	o.task(run, "one")
	const at = "2026-01-02T03:04:05Z"
	patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.TimedOutAnnotation + `":"` + at + `"}}}`)
	if err := o.live.Patch(t.Context(), run, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	o.ended(run, metav1.ConditionFalse, v1alpha1.ReasonTimedOutByNHC)
	task := o.task(run, "one")
	if task.GetAnnotations()[v1alpha1.TimedOutAnnotation] != at {
		t.Errorf("the object was not told: %v", task.GetAnnotations())
	}
	o.done(task, "True")
	if st := run.Status.Steps; st[0].State != v1alpha1.StepFailed || st[1].State != v1alpha1.StepWaiting || st[1].Object != nil {
		t.Errorf("steps %+v", st)
	}
}

// TestARunThatIsDeleted: a node is healthy again in the middle of its chain. Nothing
// begins any more, and the run is there until the objects of its steps are gone, which
// their own controllers keep.
func TestARunThatIsDeleted(t *testing.T) {
	o := open(t, 0)
	run := ofCheck("deleted-node", "deleted-node", o.twoTasks("deleted"))
	o.make(run)
	first := o.task(run, "one")
	o.done(first, "True")
	second := o.task(run, "two")
	o.keep(second, true)
	o.delete(run)
	testkit.Until(t, waitTimeout, func() bool {
		left, err := o.tasks().Get(t.Context(), second.GetName(), metav1.GetOptions{})
		return err == nil && left.GetDeletionTimestamp() != nil
	})
	testkit.Until(t, waitTimeout, func() bool {
		_, err := o.tasks().Get(t.Context(), first.GetName(), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if err := o.live.Get(t.Context(), client.ObjectKeyFromObject(run), run); err != nil || !slices.Equal(run.Finalizers, []string{v1alpha1.ObjectsFinalizer}) {
		t.Errorf("the run is gone before its object: %v, %v", run.Finalizers, err)
	}
	o.keep(second, false)
	o.waitDeleted(run)
}

// TestANodeThatIsOptedOut: no step begins on it.
func TestANodeThatIsOptedOut(t *testing.T) {
	o := open(t, 0)
	steps := o.twoTasks("optedout")
	if _, err := o.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: "optedout-node", Labels: map[string]string{nodemark.ManagedLabel: "false"}}); err != nil {
		t.Fatal(err)
	}
	run := ofCheck("optedout-node", "optedout-node", steps)
	o.make(run)
	o.ended(run, metav1.ConditionFalse, v1alpha1.ReasonNodeExcluded)
	if st := run.Status.Steps[0]; st.Object != nil || st.State != v1alpha1.StepWaiting {
		t.Errorf("step %+v", st)
	}
}
