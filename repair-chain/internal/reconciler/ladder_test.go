package reconciler

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

const examples = "../../../examples/repair-chains/"

// apply applies files to the API server.
func (o *office) apply(files ...string) {
	o.Helper()
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			o.Fatal(err)
		}
		if err := o.cluster.Apply(o.Context(), text); err != nil {
			o.Fatalf("%s: %v", file, err)
		}
		_ = text.Close()
	}
}

// resource is where the object of a step is.
func (o *office) resource(at *v1alpha1.ObjectTrace) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(at.APIVersion, at.Kind))
	all := o.cluster.Dynamic().Resource(plural)
	if at.Namespace == "" {
		return all
	}
	return all.Namespace(at.Namespace)
}

// statuses are what the controllers of the objects write in the end, by kind, when all went
// well and when not.
var statuses = map[string][2]string{
	"Job": {
		`{startTime: "2026-01-01T00:00:00Z", completionTime: "2026-01-01T00:01:00Z", succeeded: 1, conditions: [
			{type: SuccessCriteriaMet, status: "True", lastTransitionTime: "2026-01-01T00:01:00Z"}, {type: Complete, status: "True", lastTransitionTime: "2026-01-01T00:01:00Z"}]}`,
		`{startTime: "2026-01-01T00:00:00Z", failed: 1, conditions: [
			{type: FailureTarget, status: "True", lastTransitionTime: "2026-01-01T00:01:00Z"}, {type: Failed, status: "True", message: GPU 3 fails, lastTransitionTime: "2026-01-01T00:01:00Z"}]}`,
	},
	"GPUReset":      {condition("Complete", "True"), condition("Complete", "False")},
	"RebootNode":    {condition("NodeReady", "True"), condition("SignalSent", "False")},
	"TerminateNode": {condition("NodeTerminated", "True"), condition("SignalSent", "False")},
}

func condition(kind, status string) string {
	return `{observedBootID: b2, conditions: [{type: ` + kind + `, status: "` + status + `", reason: Played, message: played, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`
}

// play ends the objects of a run's steps, those of steps that are named failed badly, until
// the run has ended. It plays the controllers of their kinds. The object of the step that is
// named lost is deleted.
func (o *office) play(run *v1alpha1.RepairRun, failed, lost string) {
	o.Helper()
	testkit.Until(o, waitTimeout, func() bool {
		if err := o.live.Get(o.Context(), client.ObjectKeyFromObject(run), run); err != nil {
			return false
		}
		for _, st := range run.Status.Steps {
			if st.State != v1alpha1.StepRunning || st.Object == nil || st.Object.UID == "" {
				continue
			}
			if st.Name == lost {
				background := metav1.DeletePropagationBackground // a Job is kept else, until its pods are gone
				err := o.resource(st.Object).Delete(o.Context(), st.Object.Name, metav1.DeleteOptions{PropagationPolicy: &background})
				if err != nil && !apierrors.IsNotFound(err) {
					o.Fatal(err)
				}
				continue
			}
			object, err := o.resource(st.Object).Get(o.Context(), st.Object.Name, metav1.GetOptions{})
			if err != nil || object.Object["status"] != nil && len(object.Object["status"].(map[string]any)) > 0 { //nolint:forcetypeassert // a status
				continue
			}
			which := 0
			if strings.Contains(" "+failed+" ", " "+st.Name+" ") {
				which = 1
			}
			o.end(object, statuses[st.Object.Kind][which])
		}
		end := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded)
		return end != nil && end.Status != metav1.ConditionUnknown
	})
}

func (o *office) end(object *unstructured.Unstructured, status string) {
	o.Helper()
	var body map[string]any
	if err := yaml.Unmarshal([]byte(status), &body); err != nil {
		o.Fatal(err)
	}
	object.Object["status"] = body
	at := &v1alpha1.ObjectTrace{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace()}
	if _, err := o.resource(at).UpdateStatus(o.Context(), object, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		o.Fatal(err)
	}
}

// ladder is an office with the example reset-reboot-replace, and the janitor's kinds.
func ladder(t *testing.T) *office {
	t.Helper()
	o := open(t, 0)
	crds := "../../../distros/helm/nvsentinel/crds/janitor.dgxc.nvidia.com_"
	o.apply(crds+"gpuresets.yaml", crds+"rebootnodes.yaml", crds+"terminatenodes.yaml")
	if err := o.live.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nvsentinel"}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, file := range []string{"collect-logs", "validate", "reboot-and-validate", "ticket", "collect-reboot-validate", "reset-reboot-replace"} {
		o.apply(examples + file + ".yaml")
	}
	return o
}

// TestExamplesAreAccepted, with no warning.
func TestExamplesAreAccepted(t *testing.T) {
	o := ladder(t)
	for _, name := range []string{"reboot-and-validate", "collect-reboot-validate", "reset-reboot-replace"} {
		x := &v1alpha1.RepairChain{ObjectMeta: metav1.ObjectMeta{Name: name}}
		o.waitForCondition(x, func() []metav1.Condition { return x.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
		for _, s := range x.Spec.Steps {
			y := &v1alpha1.RepairTemplate{ObjectMeta: metav1.ObjectMeta{Name: s.Template}}
			o.waitForCondition(y, func() []metav1.Condition { return y.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
			if c := meta.FindStatusCondition(y.Status.Conditions, v1alpha1.ConditionAccepted); c.Message != "" {
				t.Errorf("%s: %s", y.Name, c.Message)
			}
		}
	}
}

// TestLadder: the example reset-reboot-replace comes to the right end, whatever fails, and
// takes no harsher step than it must. Its steps are collect, reset, validate, reboot,
// validate-again and replace.
func TestLadder(t *testing.T) {
	o := ladder(t)
	const done, failed, skipped = v1alpha1.StepDone, v1alpha1.StepFailed, v1alpha1.StepSkipped
	for name, tc := range map[string]struct {
		fails  string
		lost   string
		steps  []v1alpha1.StepState
		reason string
	}{
		"reset-is-deleted":           {"", "reset", []v1alpha1.StepState{done, failed, skipped, skipped, skipped, skipped}, v1alpha1.ReasonOutcomeUnknown},
		"validation-is-deleted":      {"", "validate", []v1alpha1.StepState{done, done, failed, skipped, skipped, skipped}, v1alpha1.ReasonOutcomeUnknown},
		"reboot-is-deleted":          {"reset", "reboot", []v1alpha1.StepState{done, failed, skipped, failed, skipped, skipped}, v1alpha1.ReasonOutcomeUnknown},
		"last-validation-is-deleted": {"reset", "validate-again", []v1alpha1.StepState{done, failed, skipped, done, failed, skipped}, v1alpha1.ReasonOutcomeUnknown},
		"replacement-is-deleted":     {"reset reboot", "replace", []v1alpha1.StepState{done, failed, skipped, failed, skipped, failed}, v1alpha1.ReasonOutcomeUnknown},
		"nothing":                    {"", "", []v1alpha1.StepState{done, done, done, skipped, skipped, skipped}, v1alpha1.ReasonDone},
		"collect":                    {"collect", "", []v1alpha1.StepState{failed, done, done, skipped, skipped, skipped}, v1alpha1.ReasonDone},
		"reset":                      {"reset", "", []v1alpha1.StepState{done, failed, skipped, done, done, skipped}, v1alpha1.ReasonDone},
		"validate":                   {"validate", "", []v1alpha1.StepState{done, done, failed, done, done, skipped}, v1alpha1.ReasonDone},
		"both-validations":           {"validate validate-again", "", []v1alpha1.StepState{done, done, failed, done, failed, done}, v1alpha1.ReasonDone},
		"reset-and-reboot":           {"collect reset reboot", "", []v1alpha1.StepState{failed, failed, skipped, failed, skipped, done}, v1alpha1.ReasonDone},
		"all":                        {"reset reboot replace", "", []v1alpha1.StepState{done, failed, skipped, failed, skipped, failed}, v1alpha1.ReasonEscalated},
		"reset-and-again-and-on":     {"reset validate-again replace", "", []v1alpha1.StepState{done, failed, skipped, done, failed, failed}, v1alpha1.ReasonEscalated},
	} {
		t.Run(name, func(t *testing.T) {
			o := &office{t, o.live, o.cluster}
			run := runOfChain("ladder-"+name, "reset-reboot-replace")
			run.Spec.NodeName = run.Name
			o.make(run)
			o.play(run, tc.fails, tc.lost)
			status := metav1.ConditionFalse
			if tc.reason == v1alpha1.ReasonDone {
				status = metav1.ConditionTrue
			}
			o.ended(run, status, tc.reason)
			for i, want := range tc.steps {
				if st := run.Status.Steps[i]; st.State != want {
					t.Errorf("step %s is %s (%s %s), want %s", st.Name, st.State, st.Reason, st.Message, want)
				}
			}
			if run.Status.Step != "" {
				t.Errorf("step %s is due behind the end", run.Status.Step)
			}
		})
	}
}

// TestLadderWithATakenName: somebody else's object has the name of the reset's. It stays as
// it is, and the node is not rebooted.
func TestLadderWithATakenName(t *testing.T) {
	o := ladder(t)
	run := runOfChain("ladder-taken", "reset-reboot-replace")
	run.Spec.NodeName = run.Name
	o.make(run)
	foreign := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": "another"}}}
	foreign.SetGroupVersionKind(schema.GroupVersionKind{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Kind: "GPUReset"})
	foreign.SetName(chain.ObjectName(run, "reset"))
	made, err := o.resource(&v1alpha1.ObjectTrace{APIVersion: foreign.GetAPIVersion(), Kind: foreign.GetKind()}).Create(t.Context(), foreign, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.play(run, "", "")
	o.ended(run, metav1.ConditionFalse, v1alpha1.ReasonOutcomeUnknown)
	o.waitForEvent(run.Name, v1alpha1.ReasonOutcomeUnknown)
	if st := run.Status.Steps; st[1].Reason != artifact.ReasonTaken || st[3].Object != nil || st[5].Object != nil {
		t.Errorf("steps %+v", st)
	}
	at := &v1alpha1.ObjectTrace{APIVersion: made.GetAPIVersion(), Kind: made.GetKind()}
	if now, err := o.resource(at).Get(t.Context(), made.GetName(), metav1.GetOptions{}); err != nil || now.GetUID() != made.GetUID() || now.GetGeneration() != made.GetGeneration() {
		t.Errorf("the other's object: %v, %v", now, err)
	}
}

// TestLadderWithoutAnInput: the input boot is left out, which the template needs. Neither
// is the node rebooted nor the machine replaced, also if the chain was accepted before it
// was checked.
func TestLadderWithoutAnInput(t *testing.T) {
	o := ladder(t)
	shipped := &v1alpha1.RepairChain{}
	if err := o.live.Get(t.Context(), client.ObjectKey{Name: "reset-reboot-replace"}, shipped); err != nil {
		t.Fatal(err)
	}
	wrong := chainOf("ladder-without-boot", shipped.Spec.Steps...)
	wrong.Spec.SucceedsIf, wrong.Spec.Steps[2].Inputs = shipped.Spec.SucceedsIf, nil
	o.make(wrong)
	o.waitForCondition(wrong, func() []metav1.Condition { return wrong.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionFalse,
		"spec.steps[2].inputs: step validate: RepairTemplate validate-gpus needs the input boot")
	refused, begun := runOfChain("ladder-refused", wrong.Name), runOfChain("ladder-begun", "reset-reboot-replace")
	begun.Spec.NodeName = begun.Name
	o.make(refused, begun)
	o.ended(refused, metav1.ConditionFalse, v1alpha1.ReasonRejected)
	testkit.Until(t, waitTimeout, func() bool {
		if err := o.live.Get(t.Context(), client.ObjectKeyFromObject(begun), begun); err != nil || begun.Status.Chain == nil {
			return false
		}
		begun.Status.Chain = wrong.Spec.DeepCopy() // as an earlier version kept it
		return o.live.Status().Update(t.Context(), begun) == nil
	})
	o.play(begun, "collect", "")
	o.ended(begun, metav1.ConditionFalse, v1alpha1.ReasonMisconfigured)
	if st := begun.Status.Steps; st[1].State != v1alpha1.StepDone || st[2].Reason != "RenderFailed" || st[3].Object != nil || st[5].Object != nil {
		t.Errorf("steps %+v", st)
	}
}

// TestManualRun: the manual run of the example is a run of the example's chain.
func TestManualRun(t *testing.T) {
	o := ladder(t)
	o.node("gpu-1")
	o.apply(examples + "run-manually.yaml")
	run := &v1alpha1.RepairRun{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1-by-hand"}}
	t.Cleanup(func() { _ = o.live.Delete(t.Context(), run) })
	testkit.Until(t, waitTimeout, func() bool {
		return o.live.Get(t.Context(), client.ObjectKeyFromObject(run), run) == nil && run.Status.Step == "collect"
	})
	o.play(run, "", "")
	o.ended(run, metav1.ConditionTrue, v1alpha1.ReasonDone)
	if o := run.Status.Steps[1].Object; o == nil || o.Kind != "GPUReset" {
		t.Errorf("the reset is %+v", o)
	}
}
