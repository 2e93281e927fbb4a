package marks_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

const driver = "system:serviceaccount:gpu-operator:nvidia-driver"

// lift takes the cordon, or our taint, off a Node, as the API server notes it.
func lift(node *corev1.Node, mark nodemark.ReleaseCause, by string) {
	if mark == nodemark.ByUncordon {
		node.Spec.Unschedulable = false
	} else {
		node.Spec.Taints = node.Spec.Taints[:1]
	}
	nodemark.Annotate(node, nodemark.LiftedByAnnotation, by)
}

// TestALiftedMarkIsRestoredOncePerMinute: the session, its other marks and its list of
// faults stay as they are.
func TestALiftedMarkIsRestoredOncePerMinute(t *testing.T) {
	faults := marks.Of([]record.Record{open("f1", "f1", everything())})
	for _, mark := range []nodemark.ReleaseCause{nodemark.ByUncordon, nodemark.ByUntaint} {
		t.Run(string(mark), func(t *testing.T) {
			node := bare()
			mutator.Apply(node, faults, now)
			whole := node.DeepCopy()
			lift(node, mark, driver)
			mutator.Apply(node, faults, now)
			want := whole.DeepCopy()
			nodemark.SetRestored(want, nodemark.Restored{Count: 1, At: now, By: driver, Mark: mark})
			if diff := cmp.Diff(want, node); diff != "" {
				t.Fatalf("after the first time (-want +got):\n%s", diff)
			}
			lift(node, mark, "")
			lifted := node.DeepCopy()
			mutator.Apply(node, faults, now.Add(59*time.Second))
			if diff := cmp.Diff(lifted, node); diff != "" {
				t.Fatalf("within the minute (-want +got):\n%s", diff)
			}
			mutator.Apply(node, faults, now.Add(time.Minute))
			nodemark.SetRestored(want, nodemark.Restored{Count: 2, At: now.Add(time.Minute), Mark: mark})
			if diff := cmp.Diff(want, node); diff != "" {
				t.Fatalf("after a minute (-want +got):\n%s", diff)
			}
		})
	}
}

// TestALiftedMarkWaitsAlone: a fault that joins meanwhile has its own marks at once.
func TestALiftedMarkWaitsAlone(t *testing.T) {
	other := record.Taint{Key: "other", Effect: "NoSchedule"}
	node := bare()
	first := open("f1", "f1", record.Effects{Cordon: true})
	mutator.Apply(node, marks.Of([]record.Record{first}), now)
	lift(node, nodemark.ByUncordon, driver)
	mutator.Apply(node, marks.Of([]record.Record{first}), now)
	lift(node, nodemark.ByUncordon, driver)
	both := marks.Of([]record.Record{first, open("f2", "f1", record.Effects{Cordon: true, Taints: []record.Taint{other}})})
	mutator.Apply(node, both, now.Add(time.Second))
	m := nodemark.Read(node)
	if node.Spec.Unschedulable || !nodemark.HasTaint(node, other) || m.Restored.Count != 1 || m.LiftedBy != "" {
		t.Errorf("cordoned %t, taints %v, %+v", node.Spec.Unschedulable, node.Spec.Taints, m.Restored)
	}
}

// TestAPersonsUncordonInARepairStaysNone when the repair has ended: who lifted the mark
// is noted and forgotten with the evaluation that saw it.
func TestAPersonsUncordonInARepairStaysNone(t *testing.T) {
	faults := marks.Of([]record.Record{open("f1", "f1", everything())})
	node := bare()
	mutator.Apply(node, faults, now)
	nodemark.SetClaim(node, "uid")
	lift(node, nodemark.ByUncordon, driver)
	mutator.Apply(node, faults, now)
	lift(node, nodemark.ByUncordon, "alice")
	mutator.Apply(node, faults, now.Add(time.Second)) // too early to restore it
	nodemark.SetClaim(node, "")
	if m := nodemark.Read(node); m.Released != nodemark.NotReleased || m.Restored.By != "alice" {
		t.Fatalf("released by %q, restored %+v", m.Released, m.Restored)
	}
	mutator.Apply(node, faults, now.Add(time.Minute))
	if m := nodemark.Read(node); !node.Spec.Unschedulable || m.Restored.Count != 2 || m.Restored.By != "alice" {
		t.Errorf("cordoned %t, %+v", node.Spec.Unschedulable, m.Restored)
	}
}

// TestMarksKeptForAClaimAreRestored too, and go with the claim.
func TestMarksKeptForAClaimAreRestored(t *testing.T) {
	node := bare()
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
	nodemark.SetClaim(node, "uid")
	mutator.Apply(node, marks.Desired{}, now)
	lift(node, nodemark.ByUncordon, "alice")
	lift(node, nodemark.ByUntaint, "alice")
	mutator.Apply(node, marks.Desired{}, now)
	if !node.Spec.Unschedulable || !nodemark.HasTaint(node, gpu) || nodemark.Read(node).Restored.Count != 1 {
		t.Fatalf("%+v %v", node.Spec, node.Annotations)
	}
	lift(node, nodemark.ByUncordon, "alice")
	mutator.Apply(node, marks.Desired{}, now.Add(time.Second))
	if node.Spec.Unschedulable {
		t.Error("restored within the minute")
	}
	nodemark.SetClaim(node, "")
	mutator.Apply(node, marks.Desired{}, now.Add(2*time.Second))
	if diff := cmp.Diff(bare(), node); diff != "" {
		t.Errorf("after the claim (-want +got):\n%s", diff)
	}
}

// TestTheNextSessionBeginsItsOwnCount, and records by whom it may be released.
func TestTheNextSessionBeginsItsOwnCount(t *testing.T) {
	node := bare()
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
	lift(node, nodemark.ByUncordon, driver)
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
	lift(node, nodemark.ByUntaint, driver)
	anyone := marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix, AnyoneReleases: true}
	anyone.Apply(node, marks.Of([]record.Record{open("f2", "f2", everything())}), now.Add(time.Second))
	m := nodemark.Read(node)
	if m.Restored != (nodemark.Restored{}) || m.Lifted != nodemark.NotReleased || !m.AnyoneReleases {
		t.Errorf("%+v, lifted %q, anyone %t", m.Restored, m.Lifted, m.AnyoneReleases)
	}
	lift(node, nodemark.ByUncordon, driver)
	if m := nodemark.Read(node); m.Released != nodemark.ByUncordon {
		t.Errorf("where anyone releases a node, a service account has not: %q", m.Released)
	}
	mutator.Apply(node, marks.Of([]record.Record{open("f3", "f3", everything())}), now)
	if nodemark.Read(node).AnyoneReleases {
		t.Error("the setting was changed back and the Node says otherwise")
	}
}

// TestEvaluateRestoration: when, and for how long not.
func TestEvaluateRestoration(t *testing.T) {
	at := func(before time.Duration) nodemark.Restored { return nodemark.Restored{Count: 1, At: now.Add(-before)} }
	for name, tt := range map[string]struct {
		m    nodemark.Marks
		want marks.Restoration
		wait time.Duration
	}{
		"nothing is lifted":        {nodemark.Marks{Session: "s", Restored: at(0)}, marks.Intact, 0},
		"a person's release":       {nodemark.Marks{Session: "s", Lifted: nodemark.ByUncordon, Released: nodemark.ByUncordon}, marks.Intact, 0},
		"the first time":           {nodemark.Marks{Session: "s", Lifted: nodemark.ByUncordon}, marks.Restore, 0},
		"just now":                 {nodemark.Marks{Session: "s", Lifted: nodemark.ByUntaint, Restored: at(0)}, marks.Later, time.Minute},
		"a second before a minute": {nodemark.Marks{Session: "s", Lifted: nodemark.ByUncordon, Restored: at(59 * time.Second)}, marks.Later, time.Second},
		"a minute ago":             {nodemark.Marks{Session: "s", Lifted: nodemark.ByUncordon, Restored: at(time.Minute)}, marks.Restore, 0},
		"by a clock ahead":         {nodemark.Marks{Session: "s", Lifted: nodemark.ByUncordon, Restored: at(-time.Hour)}, marks.Restore, 0},
		"out of session, kept":     {nodemark.Marks{Lifted: nodemark.ByUncordon, Claim: "uid"}, marks.Restore, 0},
		"the same, anyone":         {nodemark.Marks{Lifted: nodemark.ByUncordon, Claim: "uid", AnyoneReleases: true}, marks.Intact, 0},
	} {
		if got, wait := marks.EvaluateRestoration(tt.m, now); got != tt.want || wait != tt.wait {
			t.Errorf("%s: %s %s, want %s %s", name, got, wait, tt.want, tt.wait)
		}
	}
}

// TestWhyItIsNoRelease, in one word for each case.
func TestWhyItIsNoRelease(t *testing.T) {
	for _, tt := range []struct {
		m    nodemark.Marks
		want marks.Why
	}{
		{nodemark.Marks{LiftedBy: driver}, marks.NoPerson},
		{nodemark.Marks{LiftedBy: driver, Claim: "uid"}, marks.NoPerson},
		{nodemark.Marks{LiftedBy: "system:node:n"}, marks.NoPerson},
		{nodemark.Marks{LiftedBy: "alice", Claim: "uid"}, marks.RepairActive},
		{nodemark.Marks{State: nodemark.Remediating}, marks.RepairActive},
		{nodemark.Marks{}, marks.WriterHidden},
	} {
		if got := marks.NoRelease(tt.m); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.m, got, tt.want)
		}
	}
	var reported []int
	for n := 1; n <= 130; n++ {
		if marks.ReportsRestore(n) {
			reported = append(reported, n)
		}
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 60, 120}, reported); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
