package cloud

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// believe refuses a Node whose spec.providerID may name somebody else's machine.
// Whoever may register a Node chooses it: it is believed only if no other Node
// has the same, and the cloud knows the machine by the Node's name or by one of
// the addresses that the Node shows.
func (p *Plugin) believe(ctx context.Context, node *corev1.Node) error {
	machine := node.Spec.ProviderID
	err := p.nodes(ctx, machine, func(other *corev1.Node) error {
		if other.UID != node.UID && other.Spec.ProviderID == machine {
			return status.Errorf(codes.FailedPrecondition, "nodes %q and %q both say that they are machine %q", node.Name, other.Name, machine)
		}
		return nil
	})
	if err != nil {
		return err
	}
	names, err := p.Provider.Names(ctx, machine)
	if err != nil {
		return nothingDone(err)
	}
	shown := []string{node.Name}
	for _, a := range node.Status.Addresses {
		shown = append(shown, a.Address)
	}
	if !slices.ContainsFunc(shown, func(x string) bool {
		return slices.ContainsFunc(names, func(y string) bool { return strings.EqualFold(x, y) })
	}) {
		return status.Errorf(codes.FailedPrecondition, "node %q says that it is machine %q, which the cloud knows as %s: none of the node's name and addresses (%s) is among them",
			node.Name, machine, strings.Join(names, ", "), strings.Join(shown, ", "))
	}
	return nil
}
