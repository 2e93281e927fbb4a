package reconciler

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// Reasons of a run that failed, as repair-chain gives them.
const (
	runEscalated     = "Escalated"
	runMisconfigured = "Misconfigured"
	runUnknown       = "OutcomeUnknown"
	runRejected      = "Rejected"
	runSessionOver   = "SessionOver"
	runExcluded      = "NodeExcluded"
	runNotRepaired   = "NotRepaired"
	runNoNode        = "NodeNotFound"
)

// undone are the reasons of runs that have done nothing if none of their steps has an object.
var undone = []string{runMisconfigured, runUnknown, runRejected, runSessionOver, runExcluded, runNotRepaired, runNoNode}

// previewLength is how many bytes of a value's begin a record keeps.
const previewLength = 200

// runStatus is what a record keeps of a run's status.
type runStatus struct {
	Steps []struct {
		Name, Reason, Message string
		State                 string
		Template              struct{ Name, Digest string }
		Object                struct {
			Kind, Namespace, Name, UID    string
			DefinitionDigest, InputDigest string
			Generation                    int64
		}
		Inputs, Outputs []struct {
			Name, Digest, Preview, InputDigest string
			LastTransitionTime                 *time.Time
		}
		StartedAt, FinishedAt *time.Time
	}
}

// runFacts adds what only runs of chains tell. Nothing was done by one that ended for a
// reason of undone before a step had made its object.
func runFacts(o *decision.Object, obj *unstructured.Unstructured) {
	o.Steps = stepsOf(obj)
	end, _ := healthrule.ConditionOf(obj, "Succeeded")
	if end.Status != "False" {
		return
	}
	untouched := true
	for _, s := range o.Steps {
		untouched = untouched && s.UID == ""
	}
	o.Escalated = end.Reason == runEscalated
	o.Misconfigured = end.Reason == runMisconfigured
	o.OutcomeUnknown = end.Reason == runUnknown
	o.Unsent = untouched && slices.Contains(undone, end.Reason)
	o.SessionOver = end.Reason == runSessionOver && untouched
}

// stepsOf is the trace of a run; a status of another shape has none.
func stepsOf(obj *unstructured.Unstructured) (steps []record.RepairStep) {
	var status runStatus
	text, err := json.Marshal(obj.Object["status"])
	if err != nil || json.Unmarshal(text, &status) != nil {
		return nil
	}
	for _, s := range status.Steps {
		step := record.RepairStep{
			Name: s.Name, State: s.State, Reason: s.Reason, Message: s.Message, Template: s.Template.Name, Digest: s.Template.Digest, UID: s.Object.UID,
			DefinitionDigest: s.Object.DefinitionDigest, InputDigest: s.Object.InputDigest, Generation: s.Object.Generation,
			StartedAt: s.StartedAt, FinishedAt: s.FinishedAt,
		}
		if s.Object.Name != "" {
			step.Object = s.Object.Kind + " " + s.Object.Name
			if s.Object.Namespace != "" {
				step.Object = s.Object.Kind + " " + s.Object.Namespace + "/" + s.Object.Name
			}
		}
		for _, in := range s.Inputs {
			step.Inputs = append(step.Inputs, record.RepairValue{Name: in.Name, Digest: in.Digest, Preview: begin(in.Preview)})
		}
		for _, out := range s.Outputs {
			step.Outputs = append(step.Outputs, record.RepairValue{
				Name: out.Name, Digest: out.Digest, Preview: begin(out.Preview), InputDigest: out.InputDigest, ChangedAt: out.LastTransitionTime,
			})
		}
		steps = append(steps, step)
	}
	return steps
}

func begin(text string) string {
	if len(text) <= previewLength {
		return text
	}
	return strings.ToValidUTF8(text[:previewLength], "")
}
