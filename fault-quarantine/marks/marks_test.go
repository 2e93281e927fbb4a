package marks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

var (
	mutator = marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}
	now     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gpu     = record.Taint{Key: "nvidia.com/gpu-fault", Value: "xid", Effect: "NoSchedule"}
)

// bare is a node with a foreign label, annotation and taint.
func bare() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "foreign", Effect: corev1.TaintEffectNoSchedule}}},
	}
}

func open(id, session string, effects record.Effects) record.Record {
	r := record.Record{ID: id, Event: record.Event{ID: id, NodeName: "n1", Message: strings.Repeat("x", 9000)}}
	r.Status = record.Status{Session: session, QuarantineVerdict: &record.Verdict{Reason: record.Matched, RuleSets: []string{"GPU fatal: rule!"}, Effects: effects}}
	return r
}

func everything() record.Effects {
	return record.Effects{Cordon: true, Taints: []record.Taint{gpu}, Labels: []record.Label{{Key: "fault", Value: "gpu"}, {Key: "team", Value: "ours"}}}
}

func TestMarkAndRelease(t *testing.T) {
	node := bare()
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
	if !node.Spec.Unschedulable || len(node.Spec.Taints) != 2 || node.Labels["fault"] != "gpu" || node.Labels["team"] != "a" {
		t.Errorf("marked wrong: %+v %+v", node.Spec, node.Labels)
	}
	for key, want := range map[string]string{
		"k8saas.nvidia.com/cordon-by": "NVSentinel", "k8saas.nvidia.com/cordon-reason": "GPU-fatal-rule",
		"k8saas.nvidia.com/cordon-timestamp": "2026-01-02T03-04-05Z", nodemark.StateLabel: "quarantined",
	} {
		if got := node.Labels[key]; got != want {
			t.Errorf("label %s = %q, want %q", key, got, want)
		}
	}
	if nodemark.Read(node).Released != nodemark.NotReleased || !nodemark.HasMarks(node) || nodemark.Session(node) != "f1" {
		t.Error("the node does not show its session")
	}
	again := node.DeepCopy()
	mutator.Apply(again, marks.Of([]record.Record{open("f1", "f1", everything())}), now.Add(time.Hour))
	if diff := cmp.Diff(node, again); diff != "" {
		t.Errorf("marking twice changes the node: %s", diff)
	}
	mutator.Apply(node, marks.Desired{}, now)
	want := bare()
	want.Labels["k8saas.nvidia.com/uncordon-by"] = "NVSentinel"
	want.Labels["k8saas.nvidia.com/uncordon-reason"] = "GPU-fatal-rule-removed"
	want.Labels["k8saas.nvidia.com/uncordon-timestamp"] = "2026-01-02T03-04-05Z"
	if diff := cmp.Diff(want, node); diff != "" {
		t.Errorf("after the release: %s", diff)
	}
}

// TestAnotherLabelPrefix: whatever prefix was configured when a Node was marked,
// its release leaves none of our labels but those of the present one, and neither
// does another evaluation in mid-session.
func TestAnotherLabelPrefix(t *testing.T) {
	before, after := marks.Mutator{LabelPrefix: "old.example.com/"}, mutator
	for _, again := range []bool{false, true} {
		node := bare()
		node.Labels["others.example.com/cordon-by"] = "somebody"
		before.Apply(node, marks.Of([]record.Record{open("f0", "f0", everything())}), now)
		before.Apply(node, marks.Desired{}, now)
		before.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
		if again {
			after.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
			if node.Labels["k8saas.nvidia.com/cordon-by"] != "NVSentinel" {
				t.Errorf("labels %v", node.Labels)
			}
		}
		after.Apply(node, marks.Desired{}, now)
		for key := range node.Labels {
			if strings.HasPrefix(key, "old.example.com/") {
				t.Errorf("label %s stays (judged again: %t)", key, again)
			}
		}
		if node.Labels["others.example.com/cordon-by"] != "somebody" || node.Labels["k8saas.nvidia.com/uncordon-by"] != "NVSentinel" {
			t.Errorf("labels %v", node.Labels)
		}
	}
}

func TestForeignMarksStay(t *testing.T) {
	node := bare()
	node.Spec.Unschedulable = true
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: gpu.Key, Value: gpu.Value, Effect: "NoSchedule"})
	before := node.DeepCopy()
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
	if node.Annotations[nodemark.QuarantineHealthEventCordonPreExisting] != "True" || len(node.Spec.Taints) != 2 {
		t.Errorf("foreign marks were taken over: %+v", node)
	}
	mutator.Apply(node, marks.Desired{}, now)
	if diff := cmp.Diff(before, node); diff != "" {
		t.Errorf("foreign marks were taken away: %s", diff)
	}
}

func TestEachRecoveryLiftsItsOwn(t *testing.T) {
	node := bare()
	tainting := record.Effects{Taints: []record.Taint{gpu}}
	cordoning := record.Effects{Cordon: true}
	both := []record.Record{open("f1", "f1", tainting), open("f2", "f1", cordoning)}
	mutator.Apply(node, marks.Of(both), now)
	mutator.Apply(node, marks.Of(both[:1]), now)
	if node.Spec.Unschedulable || len(node.Spec.Taints) != 2 || nodemark.Read(node).Released != nodemark.NotReleased {
		t.Errorf("the cordon stays or the taint went: %+v", node.Spec)
	}
	mutator.Apply(node, marks.Of(both), now)
	mutator.Apply(node, marks.Of(both[1:]), now)
	if !node.Spec.Unschedulable || len(node.Spec.Taints) != 1 || nodemark.Read(node).Released != nodemark.NotReleased {
		t.Errorf("the taint stays or the cordon went: %+v", node.Spec)
	}
}

func TestReleaseWhileClaimed(t *testing.T) {
	node := bare()
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
	node.Annotations[nodemark.RepairAnnotation] = "uid"
	mutator.Apply(node, marks.Desired{}, now)
	if !node.Spec.Unschedulable || len(node.Spec.Taints) != 2 || nodemark.Session(node) != "" || node.Labels[nodemark.StateLabel] != "" {
		t.Errorf("a claimed node keeps cordon and taints and ends the session: %+v", node)
	}
	if !nodemark.HasMarks(node) {
		t.Error("nothing claims the marks that stay")
	}
	delete(node.Annotations, nodemark.RepairAnnotation)
	mutator.Apply(node, marks.Desired{}, now)
	if node.Spec.Unschedulable || len(node.Spec.Taints) != 1 || nodemark.HasMarks(node) {
		t.Errorf("the release was not completed: %+v", node)
	}
}

// TestManualReleaseCompletesPendingRelease: marks that were kept for a claim go with
// the first of them that anyone takes away, where anyone releases.
func TestManualReleaseCompletesPendingRelease(t *testing.T) {
	node := bare()
	mutator := marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix, AnyoneReleases: true}
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
	node.Annotations[nodemark.RepairAnnotation] = "uid"
	mutator.Apply(node, marks.Desired{}, now)
	node.Spec.Unschedulable = false
	mutator.Apply(node, marks.Desired{}, now)
	if len(node.Spec.Taints) != 1 || nodemark.HasMarks(node) || node.Annotations[nodemark.QuarantinedNodeUncordonedManually] != nodemark.True {
		t.Errorf("the release was not completed: %+v", node)
	}
}

// TestManualRelease: whatever a person takes away, nothing of the project is left, and one
// annotation states what the person did; while a repair claims the node, the person asks
// for it.
func TestManualRelease(t *testing.T) {
	untaint := func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1] }
	for name, tt := range map[string]struct {
		undo  func(*corev1.Node)
		cause nodemark.ReleaseCause
		want  string // annotation
		by    string // label uncordon-by
	}{
		"uncordoned": {func(n *corev1.Node) { n.Spec.Unschedulable = false }, nodemark.ByUncordon, nodemark.QuarantinedNodeUncordonedManually, ""},
		"untainted":  {untaint, nodemark.ByUntaint, nodemark.QuarantinedNodeUntaintedManually, "NVSentinel"},
		"both": {func(n *corev1.Node) { n.Spec.Unschedulable = false; untaint(n) }, nodemark.ByUncordon,
			nodemark.QuarantinedNodeUncordonedManually, ""},
		"another value": {func(n *corev1.Node) { n.Spec.Taints[1].Value = "mine" }, nodemark.ByUntaint, nodemark.QuarantinedNodeUntaintedManually, "NVSentinel"},
	} {
		for _, claim := range []string{"", "uid"} {
			t.Run(name+claim, func(t *testing.T) {
				node := bare()
				mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now)
				tt.undo(node)
				byAPerson(node)
				want, cause, annotation := bare(), tt.cause, tt.want
				if claim != "" {
					key, value := nodemark.Request{Session: "f1", By: "alice", Reason: "looked at"}.Annotation()
					nodemark.Annotate(node, key, value)
					cause, annotation = nodemark.ByRequest, nodemark.QuarantinedNodeUncordonedManually
					node.Annotations[nodemark.RepairAnnotation] = claim
					want.Annotations[nodemark.RepairAnnotation] = claim
				}
				if got := nodemark.Read(node).Released; got != cause {
					t.Fatalf("released by %q, want %q", got, cause)
				}
				mutator.Apply(node, marks.Desired{Ended: []string{"f1", "f2"}}, now)
				want.Annotations[annotation] = nodemark.True
				want.Annotations[nodemark.ReleasedAnnotation] = "f1,f2" // f2 is not listed on the Node yet
				if tt.by != "" {
					want.Labels["k8saas.nvidia.com/uncordon-by"] = tt.by
					want.Labels["k8saas.nvidia.com/uncordon-reason"] = "GPU-fatal-rule-removed"
					want.Labels["k8saas.nvidia.com/uncordon-timestamp"] = "2026-01-02T03-04-05Z"
				}
				if name == "another value" {
					want.Spec.Taints = append(want.Spec.Taints, corev1.Taint{Key: gpu.Key, Value: "mine", Effect: "NoSchedule"})
				}
				if diff := cmp.Diff(want, node); diff != "" {
					t.Errorf("after the release: %s", diff)
				}
				mutator.Apply(node, marks.Of([]record.Record{open("f2", "f2", everything())}), now)
				if ended := nodemark.Read(node).Ended; ended != nil {
					t.Errorf("in the next session a person has ended %v", ended)
				}
			})
		}
	}
	if nodemark.Read(bare()).Released != nodemark.NotReleased {
		t.Error("a node without claims counts as released")
	}
}

// TestEndedFaultsAreBounded: a person's release is noted for so many faults.
func TestEndedFaultsAreBounded(t *testing.T) {
	node := bare()
	var list []record.Record
	for i := range 200 {
		r := open(fmt.Sprint("f", i), "f0", everything())
		r.Event.Message = ""
		list = append(list, r)
	}
	mutator.Apply(node, marks.Of(list), now)
	node.Spec.Unschedulable = false
	byAPerson(node)
	mutator.Apply(node, marks.Desired{}, now)
	if ended := nodemark.Read(node).Ended; len(ended) != 128 || ended[0] != "f0" {
		t.Errorf("%d faults are noted: %v", len(ended), ended)
	}
}

// TestForeignMarksThatGo: who cordoned or tainted before us lifts it in
// mid-session. That is no release; the node still has a fault.
func TestForeignMarksThatGo(t *testing.T) {
	node := bare()
	node.Spec.Unschedulable = true
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: gpu.Key, Value: gpu.Value, Effect: "NoSchedule"})
	faults := marks.Of([]record.Record{open("f1", "f1", everything())})
	mutator.Apply(node, faults, now)
	node.Spec.Unschedulable, node.Spec.Taints = false, node.Spec.Taints[:1]
	if nodemark.Read(node).Released != nodemark.NotReleased {
		t.Error("a foreign hand's own cordon counts as ours")
	}
	mutator.Apply(node, faults, now)
	if !node.Spec.Unschedulable || len(node.Spec.Taints) != 2 {
		t.Errorf("a faulty node is schedulable: %+v", node.Spec)
	}
	node.Spec.Unschedulable = false
	byAPerson(node)
	if nodemark.Read(node).Released == nodemark.NotReleased {
		t.Error("now the cordon is ours, and taking it away is a release")
	}
	mutator.Apply(node, marks.Desired{}, now)
	if node.Spec.Unschedulable || len(node.Spec.Taints) != 1 || nodemark.HasMarks(node) {
		t.Errorf("leftovers: %+v", node)
	}
}

func TestShownFaultsAreBounded(t *testing.T) {
	var records []record.Record
	for range 500 {
		r := open("f1", "f1", everything())
		for range 50 {
			r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: "GPU", EntityValue: "1"})
		}
		records = append(records, r)
	}
	node := bare()
	mutator.Apply(node, marks.Of(records), now)
	text := node.Annotations[nodemark.QuarantineHealthEvent]
	var shown []map[string]any
	if err := json.Unmarshal([]byte(text), &shown); err != nil || len(shown) == 0 || len(text) > 50<<10 {
		t.Errorf("%d faults in %d bytes, %v", len(shown), len(text), err)
	}
}

// TestFollowCordon: the taint comes and goes with the cordon, and no other does.
func TestFollowCordon(t *testing.T) {
	node := bare()
	node.Spec.Unschedulable = true
	for range 2 {
		marks.FollowCordon(node)
		want := append(bare().Spec.Taints, corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"})
		if diff := cmp.Diff(want, node.Spec.Taints); diff != "" {
			t.Errorf("cordoned: %s", diff)
		}
	}
	node.Spec.Unschedulable = false
	marks.FollowCordon(node)
	if diff := cmp.Diff(bare().Spec, node.Spec); diff != "" {
		t.Errorf("uncordoned: %s", diff)
	}
}
