package cloudtest

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refused wants both signals to a node refused for good, with some words.
func (c *caller) refused(t *testing.T, node, words string) {
	t.Helper()
	for _, terminate := range []bool{false, true} {
		_, err := c.signal(t.Context(), terminate, node, fmt.Sprint(node, terminate))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("node %s, termination %v: %v, want FailedPrecondition: %s", node, terminate, err, words)
		}
	}
}

// taken wants a reboot of a node to be taken.
func (c *caller) taken(t *testing.T, node string) {
	t.Helper()
	if _, err := c.signal(t.Context(), false, node, "reboot of "+node); err != nil {
		t.Errorf("a reboot of node %s: %v", node, err)
	}
}

// expectOperations checks how often the cloud was asked to reboot and to terminate a machine.
func (w *world) expectOperations(t *testing.T, machine string, wantReboots, wantTerminations int) {
	t.Helper()
	if reboots, terminations := w.cloud.OperationCounts(machine); reboots != wantReboots || terminations != wantTerminations {
		t.Errorf("machine %s: %d reboots and %d terminations, want %d and %d", machine, reboots, terminations, wantReboots, wantTerminations)
	}
}

// Claims tries Nodes whose kubelets claim somebody else's machine, by everything that they
// write: they are refused permanently, that machine is not signaled, and its own Node is
// repaired all the same.
func Claims(t *testing.T, p Plugin) {
	w := newWorld(t, p)
	c := w.call(t)
	const other = "the cloud has other names for that machine"
	lone := w.cloud.Add(w.node("lone-machine"), "10.0.0.7") // of no Node
	c.refused(t, w.claim(t, "by-address", lone, "10.0.0.7"), other)
	w.expectOperations(t, lone, 0, 0)

	a, b := w.node("a"), w.node("b")
	c.refused(t, w.claim(t, "claims-a", w.machines[a], w.addresses[w.machines[a]]), "also claimed by nodes")
	c.taken(t, a)
	w.expectOperations(t, w.machines[a], 1, 0)
	c.refused(t, w.claim(t, "claims-b", w.machines[b], w.addresses[w.machines[b]]), other)
	if _, err := c.signal(t.Context(), true, b, "termination of "+b); err != nil {
		t.Errorf("a termination of node %s: %v", b, err)
	}
	w.expectOperations(t, w.machines[b], 0, 1)
	c.refused(t, w.claim(t, "malformed", "elsewhere:///1", "10.0.0.1"), "is not a machine of this cloud")
	if output := w.output.String(); !strings.Contains(output, "machine claimed by another node") {
		t.Error("nothing was logged of those who claim machines")
	}
}

// Proofs tries what an operator can choose for a proof: a tag that holds the name of the
// node, one kind of name alone, the tag of the cluster.
func Proofs(t *testing.T, p Plugin) {
	w := newWorld(t, p)
	restart := func(args ...string) *caller {
		w.kill(t)
		w.more = args
		return w.call(t)
	}
	named, machine := w.node("named-otherwise"), w.cloud.Add(w.node("machine-1"), "10.0.0.7")
	w.add(t, named, machine)
	w.cloud.Tag(machine, "node-name", named)
	w.cloud.Tag(w.machines[w.node("a")], "cluster", "other")

	c := restart()
	c.refused(t, named, "--node-name-from=tag:KEY")
	c = restart("--node-name-from=tag:node-name", "--cluster-tag=cluster")
	c.refused(t, named, "--cluster-tag")
	w.cloud.Tag(machine, "cluster", "ours")
	c = restart("--node-name-from=tag:node-name", "--cluster-tag=cluster=ours")
	c.taken(t, named)
	w.expectOperations(t, machine, 1, 0)
	c.refused(t, w.node("a"), "--cluster-tag")
	c.refused(t, w.node("b"), "--cluster-tag")

	// Two Nodes that can both be verified leave it undecided; which name counts is decided
	// by who runs the cluster.
	twin := w.node("machine-1")
	w.add(t, twin, machine)
	c = restart("--node-name-from=" + p.Kinds[0] + ",tag:node-name")
	c.refused(t, named, "claim machine")
	c.refused(t, twin, "claim machine")
	w.expectOperations(t, machine, 1, 0)
	c = restart("--node-name-from=" + p.Kinds[0])
	c.taken(t, twin)
	w.expectOperations(t, machine, 2, 0)
}
