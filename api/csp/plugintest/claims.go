package plugintest

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// claimant returns the name of a Node that claims the machine of another Node.
func (b *bench) claimant(t *testing.T) string {
	t.Helper()
	if b.Claim == nil {
		t.Log("this plugin reads nothing of a Node but its name")
		return b.Missing
	}
	return b.Claim(t, b.Node)
}

// claimed: what a kubelet writes of its own Node gives it nobody else's machine.
func claimed(t *testing.T, b *bench) {
	claimant := b.claimant(t)
	_, err := b.client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: claimant, IdempotencyKey: "k1"}, grpc.WaitForReady(true))
	wantRefusal(t, "a reboot of a machine that a node only claims", err)
	if _, err := b.give(t, claimant); status.Code(err) != codes.Unimplemented {
		wantRefusal(t, "a termination of a machine that a node only claims", err)
	}
	before := b.BootID(t, b.Other) // a reboot of the claimed machine would have come before this one
	b.await(t, b.Other, b.send(t, b.Other, "k2"), before)
	b.wantReboots(t, b.Node, 0)
	if !b.ready(t, b.Node, "") {
		t.Error("the claimed machine is not ready")
	}
}

// repairedAllTheSame: who claims a machine does not keep its own Node from being repaired.
func repairedAllTheSame(t *testing.T, b *bench) {
	b.claimant(t)
	before := b.BootID(t, b.Node)
	b.await(t, b.Node, b.send(t, b.Node, "k1"), before)
	b.wantReboots(t, b.Node, 1)
	if _, err := b.give(t, b.Node); err != nil && status.Code(err) != codes.Unimplemented {
		t.Errorf("a termination of the claimed machine's own node: %v", err)
	}
}
