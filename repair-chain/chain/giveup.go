package chain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
)

// Unnamed ends a run of which nobody knows the node.
func Unnamed(run *v1alpha1.RepairRun, now time.Time) {
	conclude(run, metav1.ConditionFalse, v1alpha1.ReasonNodeUnnamed,
		"spec.nodeName is required, except for a run that a NodeHealthCheck owns", now)
}

// GiveUp ends a run that its NodeHealthCheck waits for no longer: nothing begins any
// more, and of a step that is under way no verdict is waited for.
func GiveUp(run *v1alpha1.RepairRun, now time.Time) {
	message := "its NodeHealthCheck timed out the run"
	for i := range run.Status.Steps {
		if st := &run.Status.Steps[i]; st.State == v1alpha1.StepRunning {
			message = "its NodeHealthCheck timed out the run while step " + st.Name + " was in progress"
			over(st, v1alpha1.StepFailed, v1alpha1.ReasonTimedOutByNHC, "it was in progress, its result is ignored", now)
			st.Slot = ""
		}
	}
	conclude(run, metav1.ConditionFalse, v1alpha1.ReasonTimedOutByNHC, message, now)
}
