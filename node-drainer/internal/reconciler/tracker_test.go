package reconciler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// made is a pod of controller u that was created so long after noon.
func made(name string, after time.Duration) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon.Add(after)),
		OwnerReferences: []metav1.OwnerReference{{Kind: "Agent", UID: "u", Controller: new(true)}},
	}}
}

// TestReturnsAreCounted: a return is a pod that was made after an eviction, and there is
// one at most for each.
func TestReturnsAreCounted(t *testing.T) {
	type look struct {
		// evict is let through at a time after noon, before the pods are seen.
		evict     string
		at        time.Duration
		seen      []*corev1.Pod
		tainted   bool // and not cordoned
		wantCount int
	}
	first, second, third := made("a", 0), made("b", time.Minute), made("c", 2*time.Minute)
	for name, looks := range map[string][]look{
		"one after the other": {
			{evict: "a", at: 30 * time.Second, seen: []*corev1.Pod{first}},
			{seen: []*corev1.Pod{second}, wantCount: 1},
			{seen: []*corev1.Pod{second}, wantCount: 1}, // seen again
			{evict: "b", at: 90 * time.Second, seen: []*corev1.Pod{third}, wantCount: 2},
		},
		"pods that were there before": {
			{evict: "c", at: 3 * time.Minute, seen: []*corev1.Pod{first, second}},
			{evict: "b", at: 4 * time.Minute, seen: []*corev1.Pod{first}},
		},
		"several at once after one eviction": {
			{evict: "a", at: 30 * time.Second, seen: []*corev1.Pod{second, third}, wantCount: 1},
		},
		"within the second of the eviction": {
			{evict: "a", at: time.Minute + 900*time.Millisecond, seen: []*corev1.Pod{second}, wantCount: 1},
		},
		"an uncordon between": {
			{evict: "a", at: 30 * time.Second, seen: []*corev1.Pod{second}, wantCount: 1},
			{seen: []*corev1.Pod{second}, tainted: true},
			{evict: "b", at: 90 * time.Second, seen: []*corev1.Pod{third}, tainted: true, wantCount: 1},
			{seen: []*corev1.Pod{third}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTracker().open("n")
			n.cordoned = true
			for i, l := range looks {
				if l.evict != "" {
					n.note(made(l.evict, 0), try{Attempt: decision.Attempt{Result: decision.Accepted, At: noon.Add(l.at)}})
				}
				v := decision.View{Node: decision.Node{Unschedulable: !l.tainted}, Pods: l.seen}
				n.recall(&v, func(*corev1.Pod, []budget) bool { return false })
				if got := v.Returns["u"]; got != l.wantCount {
					t.Errorf("look %d: %d returns, want %d", i, got, l.wantCount)
				}
			}
		})
	}
}

func TestOverdueNodesAreCounted(t *testing.T) {
	tr := newTracker()
	wait := func(node string, blocked ...decision.Blocked) { tr.open(node).wait(blocked) }
	wait("a", decision.Blocked{Why: decision.BudgetBlocked, Overdue: true}, decision.Blocked{Why: decision.NeverCompletes, Overdue: true})
	wait("b", decision.Blocked{Why: decision.BudgetBlocked, Overdue: true})
	wait("c", decision.Blocked{Why: decision.BudgetBlocked})
	wait("d", decision.Blocked{Why: decision.AwaitingCompletion, Overdue: true})
	tr.close("d")
	want := map[decision.Reason]int{decision.BudgetBlocked: 2, decision.NeverCompletes: 1}
	if got := tr.overdue(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("overdue %v, want %v", got, want)
	}
}
