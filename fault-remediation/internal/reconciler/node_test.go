package reconciler_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// rejoin deletes the Node and makes one of the same name, with the session's
// marks: another Node object of the machine behind providerID.
func (b *bench) rejoin(providerID, boot string) {
	b.t.Helper()
	if err := b.cluster.DeleteNode(b.t.Context(), b.node); err != nil {
		b.t.Fatal(err)
	}
	_, err := b.cluster.AddNode(b.t.Context(), localcluster.NodeSpec{
		Name: b.node, BootID: boot, ProviderID: providerID, Annotations: map[string]string{nodemark.SessionAnnotation: b.session},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.patchNode(`{"spec":{"unschedulable":true}}`)
}

// TestNodeComesBack: the Node is deleted in mid-repair and the same machine is
// back under its name, rebooted: the repair ends well, and the marks are
// written on the new Node.
func TestNodeComesBack(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	old := b.liveNode().UID
	if err := b.cluster.DeleteNode(t.Context(), b.node); err != nil {
		t.Fatal(err)
	}
	b.parks(decision.WaitObject)
	if _, err := b.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: b.node, BootID: "boot-2", ProviderID: "test://" + b.node}); err != nil {
		t.Fatal(err)
	}
	b.finish(b.onlyObject(), "NodeReady", "True", "Succeeded", "boot-2")
	// Its marks are not written yet: the outcome is recorded, the Node left alone.
	b.parks(decision.WaitSession)
	b.shows("r1", "true Succeeded(Succeeded) [1 Healthy uid=true sent=true] label=")
	b.rejoin("test://"+b.node, "boot-2")
	if b.liveNode().UID == old {
		t.Fatal("the Node is the same object")
	}
	b.parks(decision.WaitRecovery)
	b.shows("r1", "true Succeeded(Succeeded) [1 Healthy uid=true sent=true] label=remediation-succeeded")
	b.onlyObject()
}

// TestAnotherMachineComesBack: nothing is created for it, and nothing written on
// its Node, until the old machine's faults are closed.
func TestAnotherMachineComesBack(t *testing.T) {
	b := newBench(t)
	b.Repairs = once(t, "")
	b.fault("r1", record.ActionRestartVM)
	b.Records = own(&failing{Store: b.store, fail: 1, written: true})
	if err := b.Handle(t.Context(), b.node); err == nil {
		t.Fatal("no interruption after the name was stamped")
	}
	b.rejoin("test://another", "boot-9")
	before := b.liveNode().ResourceVersion
	b.parks(decision.WaitMachine)
	if n := len(b.objects()); n != 0 || b.liveNode().ResourceVersion != before {
		t.Errorf("%d objects, Node written: %v; want neither", n, b.liveNode().ResourceVersion != before)
	}
	b.clear("r1")
	b.settles()
	b.shows("r1", "null Cancelled(Cancelled) [1 Cancelled uid=false sent=false] label=")
	// The new machine's own fault is repaired, with attempts of its own.
	b.session += "-2"
	b.patchNode(`{"metadata":{"annotations":{"dgxc.nvidia.com/nvsentinel-session":"` + b.session + `"}}}`)
	b.fault("r2", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	b.shows("r2", "null () [1 Unknown uid=true sent=true] label=remediating")
}
