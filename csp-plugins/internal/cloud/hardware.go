package cloud

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// Hardware is a Provider of machines that nobody gives back, and whose names it
// knows by itself: those of a rack, behind their management controllers. Identity,
// Canonical and Terminate of such a Provider are never called.
type Hardware interface {
	Provider
	// Machine names the machine of a Node, whatever the Node reports about itself.
	Machine(node *corev1.Node) (string, error)
	// Rivals reports whether another Node claims the machine of a Node.
	Rivals(one, other *corev1.Node) bool
	// Confirmed reports whether it is certain, by what its kubelet does not write, that a
	// Node is the machine that it claims.
	Confirmed(ctx context.Context, node *corev1.Node) bool
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

const (
	// rivalsLimit bounds the looks at rivals, which go on beside that at the machine: a
	// rival that does not answer is not confirmed, and delays no other Node's repair.
	rivalsLimit = 8 * time.Second
	// rivalsAtOnce is how many rivals are looked at at the same time.
	rivalsAtOnce = 32
)

// examine refuses a machine that is not certainly the Node's, and returns its mark.
func (p *Plugin) examine(ctx context.Context, hardware Hardware, machine string, node *corev1.Node) (string, error) {
	var others []*corev1.Node
	err := p.nodes(ctx, machine, func(other *corev1.Node) {
		if other.UID != node.UID && hardware.Rivals(node, other) {
			others = append(others, other)
		}
	})
	if err != nil {
		return "", err
	}
	var rivals map[string]Finding
	var looks sync.WaitGroup
	looks.Go(func() { rivals = confirm(ctx, hardware, others) })
	mark, err := hardware.Examine(ctx, machine, node)
	looks.Wait()
	if err != nil {
		return "", nothingDone(err)
	}
	found, against := resolveOwner(Proven, rivals)
	p.report(node, machine, found, rivals)
	if found != Proven {
		return "", status.Errorf(codes.FailedPrecondition, "nodes %s have the same system UUID, and so do their configured BMCs, so that the node of machine %q is undecidable and none is rebooted or terminated: correct the [[bmc]] of one, or delete the outdated Node object",
			quoted(append(against, node.Name)), machine)
	}
	return mark, nil
}

// confirm checks which rivals are certainly the machine that they claim.
func confirm(ctx context.Context, hardware Hardware, others []*corev1.Node) map[string]Finding {
	ctx, cancel := context.WithTimeout(ctx, rivalsLimit)
	defer cancel()
	var mu sync.Mutex
	rivals := map[string]Finding{}
	var looks errgroup.Group
	looks.SetLimit(rivalsAtOnce)
	for _, other := range others {
		looks.Go(func() error {
			found := Unproven
			if hardware.Confirmed(ctx, other) {
				found = Proven
			}
			mu.Lock()
			defer mu.Unlock()
			rivals[other.Name] = found
			return nil
		})
	}
	_ = looks.Wait()
	return rivals
}
