package reconciler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/remediation"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

// leases is an office whose runs take the leases of nodes.
func leases(t *testing.T) (*office, nodelease.Claims) {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	claims := nodelease.Claims{Client: cluster.Client(), Namespace: cluster.Namespace(t), Clock: clock.RealClock{}}
	return openWith(t, Deps{Leases: &claims}), claims
}

// holderOf is who has the lease of a node; empty is nobody.
func (o *office) holderOf(c nodelease.Claims, node string) string {
	o.Helper()
	l, err := c.Client.CoordinationV1().Leases(c.Namespace).Get(o.Context(), nodelease.Name(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		o.Fatal(err)
	}
	return *l.Spec.HolderIdentity
}

// TestTwoRunsOnOneNode: the second begins when the first has ended, and both give the
// node's lease back, also a run that is deleted before its end.
func TestTwoRunsOnOneNode(t *testing.T) {
	o, claims := leases(t)
	steps := o.twoTasks("serial")
	o.node("serial-node")
	first, second, third := runOfChain("serial-first", steps), runOfChain("serial-second", steps), runOfChain("serial-third", steps)
	for _, run := range []*v1alpha1.RepairRun{first, second, third} {
		run.Spec.NodeName = "serial-node"
	}
	o.make(first)
	one := o.task(first, "one")
	o.make(second)
	o.waitForCondition(second, func() []metav1.Condition { return second.Status.Conditions }, v1alpha1.ConditionSucceeded, metav1.ConditionUnknown,
		"step one: NodeLease: the lease of node serial-node is held by RepairRun-serial-first")
	o.done(one, "True")
	two := o.task(first, "two")
	if _, err := o.tasks().Get(t.Context(), chain.ObjectName(second, "one"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the second run has begun beside the first: %v", err)
	}
	o.done(two, "True")
	o.ended(first, metav1.ConditionTrue, v1alpha1.ReasonDone)
	o.task(second, "one")
	if holder := o.holderOf(claims, "serial-node"); holder != chain.Holder(second) {
		t.Errorf("the lease is held by %s", holder)
	}
	o.delete(second)
	o.waitDeleted(second)
	o.make(third)
	o.done(o.task(third, "one"), "True")
	o.done(o.task(third, "two"), "True")
	o.ended(third, metav1.ConditionTrue, v1alpha1.ReasonDone)
	testkit.Until(t, waitTimeout, func() bool { return o.holderOf(claims, "serial-node") == "" })
}

// TestARunBesideANodeHealthCheck: a person's run waits for the check's lease; the check's
// own run, and fault-remediation's, do not.
func TestARunBesideANodeHealthCheck(t *testing.T) {
	o, claims := leases(t)
	steps := o.twoTasks("beside")
	o.node("beside-node")
	node := &corev1.Node{}
	if err := o.live.Get(t.Context(), client.ObjectKey{Name: "beside-node"}, node); err != nil {
		t.Fatal(err)
	}
	if err := claims.Take(t.Context(), node, "NodeHealthCheck-workers", time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	person, check, repair := runOfChain("beside-person", steps), ofCheck("beside-check", "beside-node", steps), runOfChain("beside-repair", steps)
	person.Spec.NodeName, repair.Spec.NodeName = "beside-node", "beside-node"
	repair.Labels = map[string]string{remediation.ManagedByLabel: remediation.ManagedBy}
	repair.Annotations = map[string]string{remediation.RecordAnnotation: "record"}
	o.make(person, check, repair)
	o.task(check, "one")
	o.task(repair, "one")
	o.waitForCondition(person, func() []metav1.Condition { return person.Status.Conditions }, v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, "is held by NodeHealthCheck-workers")
	if err := claims.Drop(t.Context(), "beside-node", "NodeHealthCheck-workers"); err != nil {
		t.Fatal(err)
	}
	o.task(person, "one")
	if holder := o.holderOf(claims, "beside-node"); holder != chain.Holder(person) {
		t.Errorf("the lease is held by %q", holder)
	}
}
