package cloud

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// believe refuses a Node whose spec.providerID may name somebody else's machine: its
// kubelet chooses it when it registers the Node.
func (p *Plugin) believe(ctx context.Context, node *corev1.Node) error {
	machine := node.Spec.ProviderID
	id, err := p.Provider.Identity(ctx, machine)
	if err != nil {
		return nothingDone(err)
	}
	one, err := p.Provider.Canonical(machine)
	if err != nil {
		return err
	}
	rivals := map[string]Finding{}
	err = p.nodes(ctx, machine, func(other *corev1.Node) {
		same, err := p.Provider.Canonical(other.Spec.ProviderID)
		if err == nil && same == one && other.UID != node.UID {
			rivals[other.Name] = p.Proof.Verify(id, other.Name)
		}
	})
	if err != nil {
		return err
	}
	found, against := judge(p.Proof.Verify(id, node.Name), rivals)
	p.report(node, machine, found, rivals)
	switch found {
	case Proven:
		return nil
	case Undecided:
		return status.Errorf(codes.FailedPrecondition, "nodes %s claim machine %q, and each has a name by which the cloud knows it (%s): none of them is touched. Remove the Node objects that are stale, or name one kind by --node-name-from",
			quoted(append(against, node.Name)), machine, p.Proof.known(id))
	case OtherCluster:
		return status.Errorf(codes.FailedPrecondition, "node %q claims machine %q, which has not the tag %q (--cluster-tag): it is of no node of this cluster", node.Name, machine, p.Proof.ClusterTag)
	case Unproven:
	}
	return status.Errorf(codes.FailedPrecondition, "node %q claims machine %q by spec.providerID, which its own kubelet writes, and the cloud knows that machine by other names: %s%s. If it is the node's machine, name the tag that holds its node's name by --node-name-from=tag:KEY",
		node.Name, machine, p.Proof.known(id), also(rivals))
}

// also names those who claim the machine as well.
func also(rivals map[string]Finding) string {
	if len(rivals) == 0 {
		return ""
	}
	return fmt.Sprintf(" (claimed by nodes %s too)", quoted(slices.Sorted(maps.Keys(rivals))))
}

// named is how many Nodes a message names.
const named = 5

// quoted names some Nodes.
func quoted(names []string) string {
	slices.Sort(names)
	var words []string
	for _, name := range names[:min(named, len(names))] {
		words = append(words, fmt.Sprintf("%q", name))
	}
	if more := len(names) - named; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// report logs and counts claims that are not proven: that of the Node itself, and those of
// others.
func (p *Plugin) report(node *corev1.Node, machine string, found Finding, rivals map[string]Finding) {
	if found != Proven {
		p.Metrics.claim(found)
		p.Log.Warn("a node is not verified to be the machine that it claims; it is not touched", "node", node.Name, "machine", machine, "finding", found)
	}
	for _, name := range slices.Sorted(maps.Keys(rivals)) {
		p.Metrics.claim(rivals[name])
		p.Log.Warn("another node claims the machine of a node", "machine", machine, "node", node.Name, "claimant", name, "finding", rivals[name])
	}
}

// nodes shows all Nodes.
func (p *Plugin) nodes(ctx context.Context, machine string, show func(*corev1.Node)) error {
	for page := (metav1.ListOptions{Limit: 500}); ; {
		list, err := p.Client.CoreV1().Nodes().List(ctx, page)
		if err != nil {
			return status.Errorf(codes.Aborted, "looking for other nodes of machine %q: %v", machine, err)
		}
		for i := range list.Items {
			show(&list.Items[i])
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return nil
		}
	}
}
