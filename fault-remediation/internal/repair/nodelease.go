package repair

import (
	"context"
	"errors"
	"time"

	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

const (
	// holder of the leases that this service takes.
	holder = "fault-remediation"
	// leaseMargin is how much longer a lease lives than an object may be without a
	// verdict, and endless what stands for an object that may be so for ever.
	leaseMargin = time.Minute
	endless     = 24 * time.Hour
	// leaseWait is how long a node is left to somebody who has its lease.
	leaseWait = time.Minute
)

// claim takes the node's lease for as long as the object to be may be without a
// verdict: until then no other remediator begins anything. It is not given back
// before; the node is in quarantine, where others leave it alone anyway. waits says
// that somebody else has it.
func (d *Desk) claim(ctx context.Context, name string, repair action.Action) (waits, err error) {
	if d.Leases == nil {
		return nil, nil
	}
	node, err := kube.ReadNode(ctx, d.Cluster.Clientset, name)
	if errors.Is(err, kube.ErrGone) {
		return nil, nil // nobody else can take it either
	}
	if err != nil {
		return nil, err
	}
	life := repair.UnknownTimeout
	if life <= 0 {
		life = endless
	}
	err = d.Leases.Take(ctx, node, holder, life+leaseMargin, nil)
	if taken, is := nodelease.Taken(err); is {
		return outcome.Park(leaseWait, taken.Error()), nil
	}
	return nil, err
}
