package marks

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// nobodys begins no label's key.
const nobodys = "/"

// Clean takes every mark of the suite off a Node, for a cluster that loses it: a
// session ends as by a release that no claim holds up, then goes what a release leaves,
// and what the other services wrote. Somebody else's cordon, taints and labels stay, as
// does what nodemark.Erase leaves.
func Clean(node *corev1.Node) {
	was := node.Spec.Unschedulable
	nodemark.SetClaim(node, "")
	p := Mutator{LabelPrefix: nobodys} // labels under a real one may be somebody else's
	p.Apply(node, Desired{}, time.Time{})
	if was && !node.Spec.Unschedulable {
		FollowCordon(node)
	}
	// Each forgets all prefixes but its own.
	p.forget(node)
	Mutator{}.forget(node)
	nodemark.Erase(node)
}
