package reconciler

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Cluster is Nodes on an API server. Reads go to the server itself: a release
// decided from a stale cache would undo what a person just did.
type Cluster struct {
	Client kubernetes.Interface
	// Events writes those about Nodes; nil writes none.
	Events *eventrecorder.Recorder
}

// Read reads a Node; nil is certain absence.
func (c Cluster) Read(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := kube.ReadNode(ctx, c.Client, name)
	if errors.Is(err, kube.ErrNodeDeleted) {
		return nil, nil
	}
	return node, err
}

// Patch patches a Node while it is in every fact as before; see kube.PatchNode.
func (c Cluster) Patch(ctx context.Context, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error) {
	return kube.PatchNode(ctx, c.Client, before, mutate)
}

// Note records an Event about a Node, besides the work.
func (c Cluster) Note(_ context.Context, node *corev1.Node, e Event) {
	eventtype := corev1.EventTypeNormal
	if e.Warning {
		eventtype = corev1.EventTypeWarning
	}
	c.Events.Event(eventrecorder.Node(node.Name), eventtype, e.Reason, e.Message)
}

// MarkedIn reports from a cache of Nodes which ones bear our marks.
func MarkedIn(nodes *kube.Nodes) func(name string) bool {
	return func(name string) bool {
		node, err := nodes.Lister.Get(name)
		return err == nil && nodemark.HasMarks(node)
	}
}

// Concerns reports whether a Node's change enqueues it: it is relevant and more
// than what this reconciler has just written there.
func (rc *Reconciler) Concerns(before, after *corev1.Node) bool {
	if before == nil || after == nil {
		return true
	}
	return rc.repaired(before, after) || Relevant(before, after) && !rc.ownWrites.Ignores(after.Name, after.ResourceVersion)
}

// repaired reports whether a repair has succeeded for which recoveries wait.
func (rc *Reconciler) repaired(before, after *corev1.Node) bool {
	is := nodemark.Read(after).State
	return is == nodemark.RemediationSucceeded && nodemark.Read(before).State != is && rc.waits.is(after.Name, decision.WaitRepair)
}

// Relevant reports whether a Node's change concerns fault-quarantine: it came,
// went, was opted out or in, or bears our marks and its schedule, taints or
// session changed, or a person asks for its release, or the repair claim is gone
// that kept marks after the end of their session.
func Relevant(before, after *corev1.Node) bool {
	if before == nil || after == nil {
		return true
	}
	if before.UID != after.UID || nodemark.OptedOut(before.Labels) != nodemark.OptedOut(after.Labels) {
		return true
	}
	if !nodemark.HasMarks(before) && !nodemark.HasMarks(after) {
		return false
	}
	return before.Spec.Unschedulable != after.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(foreignToCordon(before), foreignToCordon(after)) ||
		nodemark.Session(before) != nodemark.Session(after) || released(before, after) || nodemark.Read(before).Request != nodemark.Read(after).Request
}

// released reports whether a Node out of session is claimed by no repair any more. A
// claim during a session changes no marks.
func released(before, after *corev1.Node) bool {
	was, is := nodemark.Read(before), nodemark.Read(after)
	return was.Claim != "" && is.Claim == "" && is.Session == ""
}

// foreignToCordon are a Node's taints but for the one by which Kubernetes
// follows a cordon: it shows nothing that the cordon does not, and would enqueue
// every node once more right after its quarantine.
func foreignToCordon(node *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Key != corev1.TaintNodeUnschedulable {
			out = append(out, t)
		}
	}
	return out
}

// Counts reports whether a Node's change concerns the quarantine budget: a node
// more or less, another session, or other labels.
func Counts(before, after *corev1.Node) bool {
	return before == nil || after == nil || nodemark.Session(before) != nodemark.Session(after) || !maps.Equal(before.Labels, after.Labels)
}
