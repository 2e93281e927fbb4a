package chain

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// TestApplyVerdict: what the verdict on an object makes of a step that is under way.
func TestApplyVerdict(t *testing.T) {
	verdict := func(s healthrule.State, change func(*artifact.Decision)) artifact.Decision {
		d := artifact.Decision{Health: healthrule.Result{State: s, Reason: "Verdict"}}
		change(&d)
		return d
	}
	none := func(*artifact.Decision) {}
	read := func(d *artifact.Decision) { d.Read = true }
	drifted := func(d *artifact.Decision) { d.Drifted = true }
	held := func(d *artifact.Decision) { d.Deferred = true }
	final := func(d *artifact.Decision) { d.Final = true }
	made, named := &v1alpha1.ObjectTrace{UID: "uid"}, &v1alpha1.ObjectTrace{Name: "one"}
	const healthy, unhealthy, unknown = healthrule.Healthy, healthrule.Unhealthy, healthrule.Unknown
	const done, failed, running = v1alpha1.StepDone, v1alpha1.StepFailed, v1alpha1.StepRunning
	for name, tc := range map[string]struct {
		object  *v1alpha1.ObjectTrace
		verdict artifact.Decision
		outputs bool // the template has some
		state   v1alpha1.StepState
		reason  string
	}{
		"healthy, and read":                  {made, verdict(healthy, read), true, done, "Verdict"},
		"changed, healthy, without outputs":  {made, verdict(healthy, drifted), false, done, "Verdict"},
		"changed, healthy":                   {made, verdict(healthy, drifted), true, failed, artifact.ReasonDrifted},
		"changed, no verdict":                {made, verdict(unknown, drifted), true, running, "Verdict"},
		"changed, no verdict or outputs":     {made, verdict(unknown, drifted), false, running, "Verdict"},
		"changed, unhealthy":                 {made, verdict(unhealthy, drifted), true, failed, "Verdict"},
		"no verdict":                         {made, verdict(unknown, none), true, running, "Verdict"},
		"unhealthy":                          {made, verdict(unhealthy, none), true, failed, "Verdict"},
		"no verdict, ever":                   {made, verdict(unknown, final), true, failed, "Verdict"},
		"held before there is an object":     {nil, verdict(unhealthy, held), true, running, ReasonPaused},
		"held, and perhaps nothing was made": {named, verdict(unhealthy, held), true, running, ReasonPaused},
		"held, and unhealthy":                {made, verdict(unhealthy, held), true, failed, "Verdict"},
		"held, and healthy":                  {made, verdict(healthy, func(d *artifact.Decision) { held(d); read(d) }), true, done, "Verdict"},
		"no object yet":                      {nil, verdict(unknown, none), true, running, "Verdict"},
		"perhaps an object":                  {named, verdict(unknown, none), true, running, "Verdict"},
		"no object, and none to be":          {named, verdict(unhealthy, none), true, failed, "Verdict"},
	} {
		t.Run(name, func(t *testing.T) {
			c, run := chainOf(t, v1alpha1.Step{Name: "one"})
			st := &run.Status.Steps[0]
			st.State, st.Slot, st.Object = running, "{}", tc.object
			turn := &Turn{Template: &Template{Lifecycle: artifact.Immutable}, Blocker: Blocker{ReasonPaused, "on"}}
			if tc.outputs {
				turn.Template.Paths = map[string]string{"x": ".x"}
			}
			ahead := c.ApplyVerdict(run, 0, turn, tc.verdict, noon)
			if st.State != tc.state || st.Reason != tc.reason {
				t.Errorf("it is %s %s, want %s %s", st.State, st.Reason, tc.state, tc.reason)
			}
			over := tc.state != running
			if ahead != over || (st.Slot == "") != over || st.FinishedAt.IsZero() == over || st.Drifted != tc.verdict.Drifted {
				t.Errorf("ahead %t, slot %q, over since %v, drifted %t", ahead, st.Slot, st.FinishedAt, st.Drifted)
			}
		})
	}
}

// TestConclude: the conditions of a run follow from its two steps. It goes on as long as
// anything may still begin or end.
func TestConclude(t *testing.T) {
	const done, failed, running, waiting, skipped = v1alpha1.StepDone, v1alpha1.StepFailed, v1alpha1.StepRunning, v1alpha1.StepWaiting, v1alpha1.StepSkipped
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for name, tc := range map[string]struct {
		one, two  v1alpha1.StepState
		waits     string // why the second does
		onFailure v1alpha1.OnFailure
		succeeded metav1.ConditionStatus
		reason    string
	}{
		"under way":                          {running, waiting, "", "", unknown, v1alpha1.ReasonStarted},
		"one is done":                        {done, waiting, "", "", unknown, v1alpha1.ReasonStarted},
		"the brake is on":                    {done, waiting, ReasonPaused, "", unknown, v1alpha1.ReasonStarted},
		"the quarantine is over":             {done, waiting, v1alpha1.ReasonSessionOver, "", no, v1alpha1.ReasonSessionOver},
		"the node is opted out":              {done, waiting, v1alpha1.ReasonNodeExcluded, "", no, v1alpha1.ReasonNodeExcluded},
		"both are done":                      {done, done, "", "", yes, v1alpha1.ReasonDone},
		"one is as only a newer version has": {done, "Paused", "", "", unknown, v1alpha1.ReasonStarted},
		"one is skipped":                     {skipped, done, "", "", yes, v1alpha1.ReasonDone},
		"one failed":                         {failed, skipped, "", "", no, v1alpha1.ReasonStepFailed},
		"one failed, the other cleans up":    {failed, running, "", "", unknown, v1alpha1.ReasonStarted},
		"one failed, and it is over":         {failed, waiting, v1alpha1.ReasonSessionOver, "", no, v1alpha1.ReasonStepFailed},
		"one failed, which does not matter":  {failed, done, "", v1alpha1.Continue, yes, v1alpha1.ReasonDone},
		"one failed, which is for a person":  {failed, done, "", v1alpha1.Escalate, no, v1alpha1.ReasonEscalated},
	} {
		t.Run(name, func(t *testing.T) {
			c, run := chainOf(t, v1alpha1.Step{Name: "one", OnFailure: tc.onFailure}, v1alpha1.Step{Name: "two"})
			run.Status.Steps[0].State, run.Status.Steps[1].State, run.Status.Steps[1].Reason = tc.one, tc.two, tc.waits
			ended := c.Conclude(run, noon)
			got := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded)
			if got == nil || got.Status != tc.succeeded || got.Reason != tc.reason {
				t.Fatalf("it says %+v", got)
			}
			over := tc.succeeded != unknown
			processing := meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionProcessing)
			if ended != over || Ended(run) != over || processing == over {
				t.Errorf("ended %t, and told so %t; processing %t", ended, Ended(run), processing)
			}
		})
	}
}

// TestKeep: the status shows the inputs and the template of the object as it is, not of the
// object that is wanted next; a step has begun with what is kept first.
func TestKeep(t *testing.T) {
	x := templateOf(t, "make", `{"apiVersion":"v1","kind":"ConfigMap"}`)
	_, run := chainOf(t, v1alpha1.Step{Name: "one"})
	st := &run.Status.Steps[0]
	keep := func(applied, wanted string, at time.Time) {
		t.Helper()
		p, err := Progress(run, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p.Slot.Applied = nil; applied != "" {
			p.Slot.UID, p.Slot.Applied = "uid", &artifact.Definition{Digest: applied}
		}
		turn := &Turn{Template: x, Wanted: artifact.Definition{Digest: wanted}, Inputs: []v1alpha1.InputTrace{{Name: "of", Digest: wanted}}}
		if err := Keep(run, 0, turn, p, at); err != nil {
			t.Fatal(err)
		}
	}
	keep("", "a", noon)
	if st.State != v1alpha1.StepRunning || !st.StartedAt.Time.Equal(noon) || st.Inputs != nil || st.Template != nil || st.Object.Name != ObjectName(run, "one") || st.Object.UID != "" {
		t.Errorf("intended: %+v", st)
	}
	for _, wanted := range []string{"a", "b"} {
		keep("a", wanted, noon.Add(time.Hour))
		if len(st.Inputs) != 1 || st.Inputs[0].Digest != "a" || st.Template == nil || st.Template.Name != "make" || st.Object.DefinitionDigest != "a" || !st.StartedAt.Time.Equal(noon) {
			t.Errorf("a is applied, %s is wanted: %+v", wanted, st)
		}
	}
	if keep("b", "b", noon); st.Inputs[0].Digest != "b" {
		t.Errorf("b is applied and told of %s", st.Inputs[0].Digest)
	}
}

// TestStateRoundTrip: state is read as it was written, or the error names the step.
func TestStateRoundTrip(t *testing.T) {
	_, run := chainOf(t, v1alpha1.Step{Name: "one"})
	p, err := Progress(run, 0)
	if err != nil || p.Slot.ID != "uid/one" {
		t.Fatalf("of a step that has not begun: %+v, %v", p, err)
	}
	p.Slot.UID, p.Slot.Since = "object", noon
	if err := Keep(run, 0, &Turn{Template: &Template{}}, p, noon); err != nil {
		t.Fatal(err)
	}
	if again, err := Progress(run, 0); err != nil || fmt.Sprint(again) != fmt.Sprint(p) {
		t.Errorf("kept %+v, read %+v, %v", p, again, err)
	}
	run.Status.Steps[0].Slot = "{"
	_, err = Progress(run, 0)
	expect(t, "half a slot", err, "reading the slot of step one: unexpected end of JSON input")
	p.Slot.Since = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) // no year of JSON's
	expect(t, "a year that has no form", Keep(run, 0, &Turn{Template: &Template{}}, p, noon), "encoding the slot of step one: ")
}
