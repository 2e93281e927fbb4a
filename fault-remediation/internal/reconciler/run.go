package reconciler

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// undone are the reasons of runs that have done nothing if none of their steps has an object.
var undone = []string{
	v1alpha1.ReasonMisconfigured, v1alpha1.ReasonOutcomeUnknown, v1alpha1.ReasonRejected, v1alpha1.ReasonSessionOver,
	v1alpha1.ReasonNodeExcluded, v1alpha1.ReasonNotRepaired, v1alpha1.ReasonNodeNotFound,
}

// previewLength is how many bytes of a value's begin a record keeps.
const previewLength = 200

// runFacts adds what only runs of chains report. Nothing was done by one that ended for a
// reason of undone before a step had made its object. Steps that cannot be read may have
// made one.
func runFacts(o *decision.Object, obj *unstructured.Unstructured) {
	steps, err := stepsOf(obj)
	for i := range steps {
		o.Steps = append(o.Steps, traced(&steps[i]))
	}
	end, _ := healthrule.ConditionOf(obj, v1alpha1.ConditionSucceeded)
	if end.Status != "False" {
		return
	}
	untouched := err == nil && !slices.ContainsFunc(o.Steps, func(s record.RepairStep) bool { return s.UID != "" })
	o.Escalated = end.Reason == v1alpha1.ReasonEscalated
	o.Misconfigured = end.Reason == v1alpha1.ReasonMisconfigured
	o.OutcomeUnknown = end.Reason == v1alpha1.ReasonOutcomeUnknown
	o.Unsent = untouched && slices.Contains(undone, end.Reason)
	o.SessionOver = end.Reason == v1alpha1.ReasonSessionOver && untouched
}

// stepsOf are the steps of a run. An error is a status of another shape.
func stepsOf(obj *unstructured.Unstructured) ([]v1alpha1.StepStatus, error) {
	var run struct {
		Status struct {
			Steps []v1alpha1.StepStatus `json:"steps"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &run); err != nil {
		return nil, fmt.Errorf("reading the steps of the run: %w", err)
	}
	return run.Status.Steps, nil
}

// traced is what a record keeps of a step.
func traced(s *v1alpha1.StepStatus) record.RepairStep {
	step := record.RepairStep{
		Name: s.Name, State: string(s.State), Reason: s.Reason, Message: s.Message, StartedAt: timeOf(s.StartedAt), FinishedAt: timeOf(s.FinishedAt),
	}
	if t := s.Template; t != nil {
		step.Template, step.Digest = t.Name, t.Digest
	}
	if o := s.Object; o != nil {
		step.Object, step.UID = o.Kind+" "+path.Join(o.Namespace, o.Name), o.UID
		step.DefinitionDigest, step.InputDigest, step.Generation = o.DefinitionDigest, o.InputDigest, o.Generation
	}
	for _, in := range s.Inputs {
		step.Inputs = append(step.Inputs, record.RepairValue{Name: in.Name, Digest: in.Digest, Preview: begin(in.Preview)})
	}
	for _, out := range s.Outputs {
		step.Outputs = append(step.Outputs, record.RepairValue{
			Name: out.Name, Digest: out.Digest, Preview: begin(out.Preview), InputDigest: out.InputDigest, ChangedAt: timeOf(out.LastTransitionTime),
		})
	}
	return step
}

// timeOf is nil for a time that is not set.
func timeOf(t metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

func begin(text string) string {
	if len(text) <= previewLength {
		return text
	}
	return strings.ToValidUTF8(text[:previewLength], "")
}
