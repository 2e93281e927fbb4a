package workshop

import (
	"context"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/janitor/api/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// The faults of our own that a crash test can switch on, to see that it would
// notice them. Without the build tag all of this is compiled away.
const (
	// skipIntent writes neither key nor boot id before the signal and takes a
	// new key each time.
	skipIntent = "janitor/skip-intent"
	// ignoreSession does not look at the session.
	ignoreSession = "janitor/ignore-session"
	// noClaim does not claim the Node.
	noClaim = "janitor/no-claim"
)

// distort makes Decide see what a sabotaged controller would.
func (c *Controller) distort(v *repair.View) {
	if c.sabotaged(ignoreSession) {
		v.Object.Session = ""
	}
	if c.sabotaged(noClaim) && v.Node.Exists {
		v.Node.Claim = v.Object.UID
	}
	if c.sabotaged(skipIntent) && v.Object.Key == "" && v.Node.Exists {
		v.Object.Key, v.Object.PreBoot, v.Object.Machine = "none", v.Node.Identity.BootID, v.Node.Identity
	}
}

// intended is the Node of an intent.
func (c *Controller) intended(node *corev1.Node) *corev1.Node {
	if c.sabotaged(skipIntent) {
		return nil
	}
	return node
}

// note stores that a signal is about to be sent, which leaves before leaveBy.
func (c *Controller) note(ctx context.Context, p *pass, leaveBy time.Time) error {
	if c.sabotaged(skipIntent) {
		c.kind.begin(p.object, p.node, c.Clock.Now()) // stored after the signal
		c.kind.arm(p.object, c.Clock.Now(), leaveBy)
		return nil
	}
	c.kind.arm(p.object, c.Clock.Now(), leaveBy)
	return c.write(ctx, p.object)
}

// key is the idempotency key of the next signal.
func (c *Controller) key(object v1alpha1.Repair) string {
	if c.sabotaged(skipIntent) {
		return uuid.NewString()
	}
	return object.Progress().IdempotencyKey
}
