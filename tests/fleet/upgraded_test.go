package fleet

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// goOn: after the upgrade each repair ends as it would have.
func (u *upgrade) goOn() {
	u.Helper()
	u.setVerdict(firstTurn, 1, "False")
	u.resetEnds()
	for _, node := range []string{untouched, claimedOnly, unanswered, rebooting, secondTurn, firstTurn} {
		u.rebooted(node)
	}
	for _, node := range []string{secondTurn, firstTurn} {
		u.setVerdict(node, 2, "True")
		u.runsEnd(node)
		u.confirm(node)
	}
	u.setVerdict(failedOnce, 2, "True")
	for _, node := range ofSessions {
		u.until(func(ctx context.Context) (bool, error) { return u.inService(ctx, node) })
		u.expectRecords(node)
	}
	u.waited()
	u.until(func(ctx context.Context) (bool, error) {
		_, err := u.fleet.Node(ctx, terminating)
		return apierrors.IsNotFound(err), nil
	})
	u.until(func(ctx context.Context) (bool, error) {
		records, err := u.fleet.Records(ctx, terminating)
		return !slices.ContainsFunc(records, record.Open), err
	})
	for _, node := range []string{firstTurn, secondTurn} {
		u.until(func(ctx context.Context) (bool, error) { return len(u.of(ctx, repairRuns, node)) == 0, nil })
	}
}

// resetEnds lets the pod of the GPU services go, and brings it back when it may.
func (u *upgrade) resetEnds() {
	u.Helper()
	if err := u.fleet.Cluster.Client().CoreV1().Pods(operators).Delete(u.Context(), gpuService, metav1.DeleteOptions{}); err != nil {
		u.Fatal(err)
	}
	u.serviceLabel("true")
	u.until(func(ctx context.Context) (bool, error) {
		_, err := u.fleet.Cluster.AddPod(ctx, localcluster.PodSpec{Namespace: operators, Name: gpuService, Node: servicesOff})
		return err == nil, nil
	})
	u.until(func(ctx context.Context) (bool, error) {
		o, err := u.fleet.Cluster.Dynamic().Resource(gpuResets).Get(ctx, "by-hand", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		c, _ := healthrule.ConditionOf(o, "Complete")
		if c.Status == "False" {
			u.Fatalf("the reset failed: %+v", c)
		}
		return c.Status == "True", nil
	})
}

// serviceLabel waits until the label of the GPU service has a value.
func (u *upgrade) serviceLabel(value string) {
	u.Helper()
	u.until(func(ctx context.Context) (bool, error) {
		node, err := u.fleet.Node(ctx, servicesOff)
		return err == nil && node.Labels[gpuLabel] == value, err
	})
}

// runsEnd waits until the second run of a checked node has succeeded, and the first has
// not.
func (u *upgrade) runsEnd(node string) {
	u.Helper()
	want := map[string]string{"failing": "False StepFailed", "whole": "True Done"}
	u.until(func(ctx context.Context) (bool, error) {
		runs := u.of(ctx, repairRuns, node)
		for _, run := range runs {
			end, _ := healthrule.ConditionOf(run, "Succeeded")
			if end.Status+" "+end.Reason != want[run.GetAnnotations()["remediation.medik8s.io/template-name"]] {
				return false, nil
			}
		}
		return len(runs) == len(want), nil
	})
}

// waited: the second run was created when the back-off behind the first was over.
func (u *upgrade) waited() {
	u.Helper()
	r, err := u.newest(u.Context(), failedOnce)
	if err != nil {
		u.Fatal(err)
	}
	a := record.Attempts(r)
	if len(a) != 2 || a[0].FinishedAt == nil || a[0].State != string(healthrule.Unhealthy) || a[1].State != string(healthrule.Healthy) {
		u.Fatalf("the attempts are %+v", a)
	}
	if a[1].SubmittedAt.Before(a[0].FinishedAt.Add(firstBackoff - time.Second)) { // the API server's times are in whole seconds
		u.Errorf("the second attempt began at %s, the first one failed at %s", a[1].SubmittedAt, a[0].FinishedAt)
	}
}

// eachOnce: each name was filled by one object. The provider was asked once for each object
// that asks a machine, but for the one that it did not answer: there with one key.
func (u *upgrade) eachOnce() {
	u.Helper()
	// 6 RebootNodes of sessions, 4 of chains, a TerminateNode, a GPUReset with its Job, 6
	// RepairRuns with 6 Validations.
	u.made.once(u.T, 6+4+1+1+1+6+6)
	journal, err := u.fleet.JournalEntries()
	if err != nil {
		u.Fatal(err)
	}
	keys, asked, done := map[string]map[string]bool{}, map[string]int{}, map[string]int{}
	for _, e := range journal {
		switch e.Effect {
		case "accepted", "duplicate", "hung":
			asked[e.Node]++
			if keys[e.Node] == nil {
				keys[e.Node] = map[string]bool{}
			}
			keys[e.Node][e.Key] = true
		case "rebooted", "terminated":
			done[e.Node]++
		}
	}
	several := map[string]int{failedOnce: 2, servicesOff: 0}
	for _, node := range u.fleet.NodeNames() {
		want, ok := several[node]
		if !ok {
			want = 1
		}
		if len(keys[node]) != want || done[node] != want || (node != unanswered && asked[node] != want) {
			u.Errorf("%s: the provider was asked %d times with the keys %v and did %d of them, want %d", node, asked[node], keys[node], done[node], want)
		}
	}
}

// of are the objects of a kind for a node.
func (u *upgrade) of(ctx context.Context, kind schema.GroupVersionResource, node string) (out []*unstructured.Unstructured) {
	u.Helper()
	list, err := u.fleet.Cluster.Dynamic().Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		o := &list.Items[i]
		name, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		if name == node || o.GetAnnotations()["remediation.medik8s.io/node-name"] == node {
			out = append(out, o)
		}
	}
	return out
}

// setVerdict gives the newest validation of a node its verdict, once there are as many.
func (u *upgrade) setVerdict(node string, n int, good string) {
	u.Helper()
	u.until(func(ctx context.Context) (bool, error) { return len(u.of(ctx, validations, node)) == n, nil })
	for _, o := range u.of(u.Context(), validations, node) {
		if _, evaluated := healthrule.ConditionOf(o, "Good"); !evaluated {
			u.verdict(o.GetName(), good)
		}
	}
}
