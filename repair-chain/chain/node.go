package chain

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

// HolderPrefix begins the names of the holders of the leases that runs take.
const HolderPrefix = "RepairRun-"

// Holder is the name of a run as the holder of its node's lease.
func Holder(run *v1alpha1.RepairRun) string { return HolderPrefix + run.Name }

// Leased reports whether the maker of a run holds the node's lease for it: a
// NodeHealthCheck, or fault-remediation.
func Leased(run *v1alpha1.RepairRun) bool {
	return v1alpha1.OwnedByNodeHealthCheck(run) ||
		run.Labels[remediation.ManagedByLabel] == remediation.ManagedBy && run.Annotations[remediation.RecordAnnotation] != ""
}

// Untouched reports whether no step of a run has begun.
func Untouched(run *v1alpha1.RepairRun) bool {
	for _, st := range run.Status.Steps {
		if st.Object != nil || st.State != v1alpha1.StepWaiting {
			return false
		}
	}
	return true
}

// NoNode ends a run for a Node that does not exist.
func NoNode(run *v1alpha1.RepairRun, now time.Time) {
	conclude(run, metav1.ConditionFalse, v1alpha1.ReasonNodeNotFound,
		fmt.Sprintf("Node %s does not exist: spec.nodeName must name an existing Node", v1alpha1.NodeOf(run)), now)
}
