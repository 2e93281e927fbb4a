package reconciler

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

// waitForEvent waits for a Warning Event about an object.
func (o *office) waitForEvent(name, reason string) {
	o.Helper()
	testkit.Until(o, waitTimeout, func() bool {
		list := &eventsv1.EventList{}
		if err := o.live.List(o.Context(), list); err != nil {
			return false
		}
		for _, e := range list.Items {
			if e.Regarding.Name == name && e.Reason == reason && e.Type == "Warning" {
				return true
			}
		}
		return false
	})
}

// TestATemplateThatChanges: its chains are looked at again; a run that is under way goes
// on with the chain that it began with, and ends as misconfigured at the step that can not
// be carried out any more. Events report both.
func TestATemplateThatChanges(t *testing.T) {
	o := open(t, 0)
	first := o.twoTasks("changes")
	second := template("changes-second", `{"apiVersion":"example.com/v1","kind":"Task","spec":{"nodeName":"{{ .NodeName }}"}}`)
	ladder := chainOf("changes-ladder", v1alpha1.Step{Name: "reset", Template: first, OnFailure: v1alpha1.Continue},
		v1alpha1.Step{Name: "validate", Template: second.Name, When: "steps.reset == 'Done'", OnFailure: v1alpha1.Continue},
		v1alpha1.Step{Name: "reboot", Template: first, When: "steps.validate == 'Failed'"})
	conditions := func() []metav1.Condition { return ladder.Status.Conditions }
	run := runOfChain("changes-run", ladder.Name)
	o.make(second, ladder)
	o.waitForCondition(ladder, conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
	o.make(run)
	task := o.task(run, "reset")
	patch := `{"spec":{"template":{"spec":{"boot":"{{ .Inputs.boot }}"}}}}`
	if err := o.live.Patch(t.Context(), second, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	o.waitForCondition(ladder, conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse,
		"spec.steps[1].inputs: step validate: RepairTemplate changes-second needs the input boot (.Inputs.boot): add it")
	o.waitForEvent(ladder.Name, "NotAccepted")
	o.done(task, "True")
	o.ended(run, metav1.ConditionFalse, v1alpha1.ReasonMisconfigured)
	o.waitForEvent(run.Name, v1alpha1.ReasonMisconfigured)
	for i, want := range []v1alpha1.StepState{v1alpha1.StepDone, v1alpha1.StepFailed, v1alpha1.StepSkipped} {
		if run.Status.Steps[i].State != want {
			t.Errorf("step %+v, want %s", run.Status.Steps[i], want)
		}
	}
	late := runOfChain("changes-late", ladder.Name)
	o.make(late)
	o.ended(late, metav1.ConditionFalse, v1alpha1.ReasonRejected)
	if len(late.Status.Steps) > 0 {
		t.Errorf("a run of what is not accepted has begun: %+v", late.Status)
	}
}

// TestARunOfAnEarlierVersion: it was accepted before names were checked, and goes on.
func TestARunOfAnEarlierVersion(t *testing.T) {
	o := open(t, 0)
	o.node("earlier-node")
	task := o.twoTasks("earlier")
	spec := v1alpha1.RepairChainSpec{Steps: []v1alpha1.Step{
		{Name: "a", Template: task, OnFailure: v1alpha1.Continue, Timeout: metav1.Duration{Duration: time.Hour}},
		{Name: "b", Template: task, When: "steps.a == 'failed'", OnFailure: v1alpha1.Stop, Timeout: metav1.Duration{Duration: time.Hour}},
	}}
	run := runOfChain("earlier-run", "earlier-chain")
	run.Spec.NodeName, run.Finalizers = "earlier-node", []string{v1alpha1.ObjectsFinalizer}
	now := metav1.NewTime(time.Now().Add(-time.Minute))
	o.make(chainOf("earlier-chain", v1alpha1.Step{Name: "a", Template: task}))
	o.make(run)
	o.task(run, "a")
	testkit.Until(t, waitTimeout, func() bool {
		if err := o.live.Get(t.Context(), client.ObjectKeyFromObject(run), run); err != nil {
			return false
		}
		begun := run.Status.Steps[0]
		run.Status = chain.Begin("earlier-node", spec)
		run.Status.Steps[0], run.Status.Steps[0].StartedAt = begun, now
		return o.live.Status().Update(t.Context(), run) == nil
	})
	o.done(o.task(run, "a"), "False")
	o.ended(run, metav1.ConditionFalse, v1alpha1.ReasonNotRepaired)
	o.waitForEvent(run.Name, v1alpha1.ReasonNotRepaired)
}

// TestARunForNoSuchNode: nothing is made for a Node that does not exist.
func TestARunForNoSuchNode(t *testing.T) {
	o := open(t, 0)
	steps := o.twoTasks("nowhere")
	run := runOfChain("nowhere-run", steps)
	run.Spec.NodeName = "nowhere"
	if err := o.live.Create(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.live.Delete(t.Context(), run) })
	o.ended(run, metav1.ConditionFalse, v1alpha1.ReasonNodeNotFound)
	o.waitForEvent(run.Name, v1alpha1.ReasonNodeNotFound)
	if len(run.Status.Steps) > 0 {
		t.Errorf("it has begun: %+v", run.Status)
	}
}

// TestALongMistake: the condition and the Event have what fits, and are written.
func TestALongMistake(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	c := &Reconciler{Deps: Deps{Log: slog.New(slog.DiscardHandler)}, events: recorder}
	x := &v1alpha1.RepairChain{}
	if !c.accepted(x, &x.Status.Conditions, errors.New(strings.Repeat("é", maxMessage)), nil) {
		t.Fatal("nothing has changed")
	}
	if got := x.Status.Conditions[0]; got.Status != metav1.ConditionFalse || len(got.Message) != maxMessage {
		t.Errorf("%s with a message of %d bytes", got.Status, len(got.Message))
	}
	if note := <-recorder.Events; !strings.HasPrefix(note, "Warning NotAccepted é") || len(note) > maxNote+len("Warning NotAccepted ") {
		t.Errorf("an Event of %d bytes: %.40s", len(note), note)
	}
}

// TestObjectMessages: a run shows which generation the object's controller has seen, and
// the result of the template's healthRule.
func TestObjectMessages(t *testing.T) {
	o := open(t, 0)
	read := template("read", `{"apiVersion":"example.com/v1","kind":"Task","spec":{"nodeName":"{{ .NodeName }}"}}`)
	read.Spec.HealthRule = &v1alpha1.HealthRule{SingleConditionType: "Pretty"}
	read.Spec.ArtifactTracing = &v1alpha1.ArtifactTracing{HealthRule: v1alpha1.HealthRule{SingleConditionType: "Done"}}
	run := runOfChain("read-run", "read")
	o.make(read, chainOf("read", v1alpha1.Step{Name: "one", Template: read.Name}))
	o.make(run)
	task := o.task(run, "one")
	task.Object["status"] = map[string]any{"observedGeneration": task.GetGeneration(), "conditions": []any{
		map[string]any{"type": "Done", "status": "True"}, map[string]any{"type": "Pretty", "status": "False", "message": "not at all"},
	}}
	if _, err := o.tasks().UpdateStatus(t.Context(), task, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	o.ended(run, metav1.ConditionTrue, v1alpha1.ReasonDone)
	st := run.Status.Steps[0]
	if st.Object.ObservedGeneration != task.GetGeneration() || st.Object.ObservedGeneration == 0 {
		t.Errorf("observed generation %d, the object's is %d", st.Object.ObservedGeneration, task.GetGeneration())
	}
	if want := (v1alpha1.HealthTrace{State: "Unhealthy", Reason: "PrettyCondition", Message: "not at all"}); st.Health == nil || *st.Health != want {
		t.Errorf("health %+v", st.Health)
	}
}
