package cloud

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Hardware is a Provider of machines that nobody gives back, and whose names it
// knows by itself: those of a rack, behind their management controllers. Names
// and Terminate of such a Provider are never called.
type Hardware interface {
	Provider
	// Machine names the machine of a Node, whatever its spec.providerID is.
	Machine(node *corev1.Node) (string, error)
	// Rivals says whether two Nodes can not both be right about their machines.
	Rivals(one, other *corev1.Node) bool
	// Examine looks at a machine before a signal. It fails unless the machine is
	// certainly the Node's. The mark changes whenever the machine is reset, by
	// whomever; empty is unknown.
	Examine(ctx context.Context, machine string, node *corev1.Node) (mark string, err error)
}

// hardware is the provider, if it is one of hardware.
func (p *Plugin) hardware() (Hardware, bool) {
	simple, ok := p.Provider.(direct)
	if !ok {
		return nil, false
	}
	found, ok := simple.Provider.(Hardware)
	return found, ok
}

// examine refuses a machine that is not certainly the Node's, and returns its mark.
func (p *Plugin) examine(ctx context.Context, hardware Hardware, machine string, node *corev1.Node) (string, error) {
	err := p.nodes(ctx, machine, func(other *corev1.Node) error {
		if other.UID != node.UID && hardware.Rivals(node, other) {
			return status.Errorf(codes.FailedPrecondition, "nodes %q and %q both say that they are machine %q", node.Name, other.Name, machine)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	mark, err := hardware.Examine(ctx, machine, node)
	return mark, nothingDone(err)
}

// nodes shows all Nodes until one is refused.
func (p *Plugin) nodes(ctx context.Context, machine string, refuse func(*corev1.Node) error) error {
	for page := (metav1.ListOptions{Limit: 500}); ; {
		list, err := p.Client.CoreV1().Nodes().List(ctx, page)
		if err != nil {
			return status.Errorf(codes.Aborted, "looking for other nodes of machine %q: %v", machine, err)
		}
		for i := range list.Items {
			if err := refuse(&list.Items[i]); err != nil {
				return err
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return nil
		}
	}
}
