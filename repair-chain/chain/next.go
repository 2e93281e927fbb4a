package chain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// Reasons of steps that no rule gives.
const (
	// ReasonMistake: an earlier step showed a mistake in the chain or a template, so this step is skipped. Action:
	// correct the RepairChain or RepairTemplate that the message names.
	ReasonMistake = "EarlierStepMisconfigured"
	// ReasonUnknown: the effect of an earlier step is unknown, so this step is skipped. Action: find out whether the
	// node was repaired (`nvsentinel trace <node>`).
	ReasonUnknown = "EarlierOutcomeUnknown"
	// ReasonSkipped: the condition `when` of the step is false, so the step is skipped. Action: none.
	ReasonSkipped = "ConditionFalse"
	// ReasonEarlier: an earlier step failed the run, and this step has no `always: true`, so it is skipped. Action:
	// read the failed step in `nvsentinel trace <node>`.
	ReasonEarlier = "EarlierStepFailed"
	// ReasonExpression: the condition `when` or an input of the step cannot be evaluated, so the step fails and the
	// run ends as Misconfigured. Action: correct the expression in the RepairChain.
	ReasonExpression = "ExpressionFailed"
	// ReasonTemplate: the RepairTemplate of the step is missing or invalid, so the step waits. Action: create or
	// correct the template. Its condition Accepted names the mistake.
	ReasonTemplate = "TemplateUnusable"
	// ReasonRender: the template makes no valid object from the inputs of the step, so the step fails and the run ends
	// as Misconfigured. Action: correct the RepairTemplate or the inputs in the RepairChain.
	ReasonRender = "RenderFailed"
	// ReasonPaused: the emergency stop is on, so no step starts and no object is changed. Action: read in
	// `nvsentinel status` by whom and why it was switched on, and run `nvsentinel resume` when the cause is gone.
	ReasonPaused = "Paused"
	// ReasonLease: the Lease of the node could not be taken, because another remediator or run works on the node. The
	// step waits. Action: none while that one works. Otherwise end it. The message names the holder or the error.
	ReasonLease = "NodeLease"
	// ReasonTrouble: the object of the step could not be read, created or changed. repair-chain retries. Action: none
	// if it ends by itself. Otherwise correct the cause in the message, such as a missing right or CRD.
	ReasonTrouble = "ObjectError"
	// ReasonNode: the Node could not be read, so the step waits. Action: none if it ends by itself. Otherwise check
	// that the API server responds and that the service account has `get` on Nodes.
	ReasonNode = "NodeUnreadable"
)

// Facts is what a run depends on besides itself.
type Facts struct {
	// Session that the Node bears; Excluded means that the node is opted out, Unread that
	// the Node could not be read.
	Session          string
	Excluded, Unread bool
	// Pause is why nothing may begin; empty is off. Lease is why the node's lease could not
	// be taken.
	Pause, Lease string
	// Templates by name, and what is wrong with those that can not be used.
	Templates map[string]*Template
	Problems  map[string]string
	Now       time.Time
}

// Turn is what is due of a step's object.
type Turn struct {
	Template *Template
	// Wanted is its newest definition, of Inputs.
	Wanted artifact.Definition
	Inputs []v1alpha1.InputTrace
	// Blocker is why nothing may be written now; empty is nothing.
	Blocker Blocker
}

// Blocker is why no step may begin, and nothing be written.
type Blocker struct{ Reason, Message string }

// Begin is the status of a run at its start: its node, and the chain as it is now.
func Begin(node string, spec v1alpha1.RepairChainSpec) v1alpha1.RepairRunStatus {
	status := v1alpha1.RepairRunStatus{NodeName: node, Chain: spec.DeepCopy()}
	for _, s := range spec.Steps {
		status.Steps = append(status.Steps, v1alpha1.StepStatus{Name: s.Name, State: v1alpha1.StepWaiting})
	}
	return status
}

// Consider decides about a step of a run, and writes into its status what its object does
// not control. A turn is due if the object is to be read, made or written; ahead reports
// whether the next step may be considered.
//
// A step begins when all before it are over. What is over is over: only an object that
// follows its rendered definition is maintained until the run's end.
func (c *Chain) Consider(run *v1alpha1.RepairRun, i int, f Facts) (turn *Turn, ahead bool) {
	st, s := &run.Status.Steps[i], c.Steps[i]
	t, usable := f.Templates[s.Template]
	switch st.State {
	case v1alpha1.StepSkipped, v1alpha1.StepFailed:
		return nil, true
	case v1alpha1.StepDone:
		if !usable || t.Lifecycle == artifact.Immutable {
			return nil, true
		}
	case v1alpha1.StepWaiting:
		if !c.begins(run, i, f) {
			return nil, st.State != v1alpha1.StepWaiting
		}
	case v1alpha1.StepRunning:
	default: // a newer version gave it, for one to go on with
		return nil, false
	}
	if !usable {
		wait(st, ReasonTemplate, f.Problems[s.Template])
		return nil, false
	}
	turn, err := c.render(run, i, t)
	switch {
	case err == nil:
		turn.Blocker = blockerOf(run, f)
		return turn, st.State == v1alpha1.StepDone
	case st.State == v1alpha1.StepWaiting:
		over(st, v1alpha1.StepFailed, ReasonRender, err.Error(), f.Now)
		return nil, true
	}
	// What is under way goes on as it was made.
	return &Turn{Template: t, Blocker: blockerOf(run, f)}, st.State == v1alpha1.StepDone
}

// begins decides whether a step that waits may begin.
func (c *Chain) begins(run *v1alpha1.RepairRun, i int, f Facts) bool {
	st := &run.Status.Steps[i]
	if earlier := undecided(run.Status.Steps[:i]); earlier >= 0 {
		reason, message := follows(run.Status.Steps[earlier])
		over(st, v1alpha1.StepSkipped, reason, message, f.Now)
		return false
	}
	if failed := c.failed(run.Status.Steps[:i]); failed >= 0 && !c.Steps[i].Always {
		over(st, v1alpha1.StepSkipped, ReasonEarlier, "step "+c.Steps[failed].Name+" failed the run", f.Now)
		return false
	}
	if hold := blockerOf(run, f); hold != (Blocker{}) {
		wait(st, hold.Reason, hold.Message)
		return false
	}
	vars, err := variables(run)
	if err != nil {
		over(st, v1alpha1.StepFailed, ReasonExpression, err.Error(), f.Now)
		return false
	}
	due, err := c.Steps[i].due(vars)
	switch {
	case err != nil:
		over(st, v1alpha1.StepFailed, ReasonExpression, err.Error(), f.Now)
	case !due:
		over(st, v1alpha1.StepSkipped, ReasonSkipped, "its condition is false: "+c.Steps[i].When, f.Now)
	}
	return err == nil && due
}

// follows is why no step begins after one that failed with no result about the node.
func follows(earlier v1alpha1.StepStatus) (reason, message string) {
	if endsRun(earlier) == v1alpha1.ReasonMisconfigured {
		return ReasonMistake, "step " + earlier.Name + " shows an error in the chain or its template: no further step starts"
	}
	return ReasonUnknown, "the effect of step " + earlier.Name + " is unknown (" + earlier.Reason + "): no further step starts"
}

// blockerOf returns why nothing may be written now.
func blockerOf(run *v1alpha1.RepairRun, f Facts) Blocker {
	switch {
	case run.DeletionTimestamp != nil:
		return Blocker{v1alpha1.ReasonSessionOver, "the run is being deleted"}
	case f.Unread:
		return Blocker{ReasonNode, "the node could not be read"}
	case run.Spec.Fault.Session != "" && f.Session != run.Spec.Fault.Session:
		return Blocker{v1alpha1.ReasonSessionOver, "the quarantine session of the node has ended"}
	case f.Excluded:
		return Blocker{v1alpha1.ReasonNodeExcluded, "the node is opted out by its label"}
	case f.Pause != "":
		return Blocker{ReasonPaused, f.Pause}
	case f.Lease != "":
		return Blocker{ReasonLease, f.Lease}
	}
	return Blocker{}
}

// render makes the newest definition of a step's object.
func (c *Chain) render(run *v1alpha1.RepairRun, i int, t *Template) (*Turn, error) {
	vars, err := variables(run)
	if err != nil {
		return nil, err
	}
	values, err := c.Steps[i].values(vars)
	if err != nil {
		return nil, err
	}
	turn := &Turn{Template: t}
	if turn.Wanted, err = t.Render(run, c.Steps[i].Name, values); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		digest, preview, err := artifact.Preview(values[name])
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
		turn.Inputs = append(turn.Inputs, v1alpha1.InputTrace{Name: name, Digest: digest, Preview: preview})
	}
	return turn, nil
}

// maxMessage is how many bytes of a message are kept.
const maxMessage = 1024

// bounded cuts a message between two characters.
func bounded(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

func wait(st *v1alpha1.StepStatus, reason, message string) {
	st.Reason, st.Message = reason, bounded(message)
}

func over(st *v1alpha1.StepStatus, state v1alpha1.StepState, reason, message string, now time.Time) {
	wait(st, reason, message)
	st.State, st.FinishedAt = state, metav1.NewTime(now)
}

// Progress is what is remembered of a step's object.
func Progress(run *v1alpha1.RepairRun, i int) (artifact.Progress, error) {
	st := run.Status.Steps[i]
	p := artifact.Progress{Slot: artifact.Slot{ID: SlotID(run, st.Name)}}
	if st.Slot != "" {
		if err := json.Unmarshal([]byte(st.Slot), &p.Slot); err != nil {
			return p, fmt.Errorf("reading the slot of step %s: %w", st.Name, err)
		}
	}
	for _, o := range st.Outputs {
		p.Outputs = append(p.Outputs, artifact.Output{
			Name: o.Name, Digest: o.Digest, Preview: o.Preview, Value: o.Value,
			DefinitionDigest: o.DefinitionDigest, InputDigest: o.InputDigest, LastTransitionTime: o.LastTransitionTime.Time,
		})
	}
	return p, nil
}

// Keep writes what is to be remembered of a step's object into the run; the step has
// begun then.
func Keep(run *v1alpha1.RepairRun, i int, turn *Turn, p artifact.Progress, now time.Time) error {
	st := &run.Status.Steps[i]
	text, err := json.Marshal(p.Slot)
	if err != nil {
		return fmt.Errorf("encoding the slot of step %s: %w", st.Name, err)
	}
	st.Slot = string(text)
	if st.State == v1alpha1.StepWaiting {
		st.State, st.StartedAt = v1alpha1.StepRunning, metav1.NewTime(now)
	}
	t := turn.Template
	object := v1alpha1.ObjectTrace{
		APIVersion: t.GVK.GroupVersion().String(), Kind: t.GVK.Kind, Namespace: t.Namespace, Name: ObjectName(run, st.Name), UID: p.Slot.UID,
	}
	if applied := p.Slot.Applied; applied != nil {
		object.DefinitionDigest, object.InputDigest, object.Generation = applied.Digest, applied.InputDigest, applied.Generation
		if applied.Digest == turn.Wanted.Digest {
			st.Inputs, st.Template = turn.Inputs, &v1alpha1.TemplateTrace{Name: t.Name, Digest: t.Digest}
		}
	}
	if before := st.Object; before != nil && before.UID == object.UID {
		object.ObservedGeneration = before.ObservedGeneration
	}
	st.Object, st.Outputs = &object, nil
	for _, o := range p.Outputs {
		st.Outputs = append(st.Outputs, v1alpha1.OutputTrace{
			Name: o.Name, Digest: o.Digest, Preview: o.Preview, Value: o.Value,
			DefinitionDigest: o.DefinitionDigest, InputDigest: o.InputDigest, LastTransitionTime: metav1.NewTime(o.LastTransitionTime),
		})
	}
	return nil
}

// ApplyVerdict writes what the verdict on a step's object means into the run; ahead reports
// whether the next step may be considered.
func (c *Chain) ApplyVerdict(run *v1alpha1.RepairRun, i int, turn *Turn, d artifact.Decision, now time.Time) (ahead bool) {
	st := &run.Status.Steps[i]
	st.Stale = len(st.Outputs) > 0 && !d.Read
	st.Drifted = st.Drifted || d.Drifted
	if st.State == v1alpha1.StepDone { // for good
		return true
	}
	wait(st, d.Health.Reason, d.Health.Message)
	switch {
	case d.Deferred && (st.Object == nil || st.Object.UID == ""): // there is no object
		wait(st, turn.Blocker.Reason, turn.Blocker.Message)
	case d.Read, d.Health.State == healthrule.Healthy && d.Drifted && len(turn.Template.Paths) == 0:
		over(st, v1alpha1.StepDone, d.Health.Reason, d.Health.Message, now)
		if turn.Template.Lifecycle == artifact.Immutable {
			st.Slot = "" // it is not looked at again
		}
		return true
	case d.Health.State == healthrule.Healthy && d.Drifted:
		over(st, v1alpha1.StepFailed, artifact.ReasonDrifted, "another client changed the object's definition: its outputs are invalid", now)
	case d.Final, d.Health.State == healthrule.Unhealthy:
		over(st, v1alpha1.StepFailed, d.Health.Reason, d.Health.Message, now)
	}
	if st.State == v1alpha1.StepFailed {
		st.Slot = "" // nothing of it is looked at again
	}
	return st.State == v1alpha1.StepFailed
}

// Trouble records why a step's object could not be read, made or written just now.
func Trouble(run *v1alpha1.RepairRun, i int, err error) {
	wait(&run.Status.Steps[i], ReasonTrouble, err.Error())
}
