package decision

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// byAPerson has the API server note that a person lifted a mark of a Node.
func byAPerson(n *corev1.Node) *corev1.Node {
	nodemark.Annotate(n, nodemark.LiftedByAnnotation, "alice")
	return n
}

func TestNodeOf(t *testing.T) {
	taint := record.Taint{Key: "gpu", Value: "true", Effect: "NoSchedule"}
	tests := []struct {
		name string
		node *corev1.Node
		want Node
	}{
		{"missing", nil, Node{}},
		{"foreign", &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, Node{Exists: true, Unschedulable: true}},
		{"marked", marked(true, taint), Node{Exists: true, Session: "s", State: nodemark.Draining, Unschedulable: true, Taints: []record.Taint{taint}}},
		{"uncordoned by nobody known", marked(false, taint), Node{Exists: true, Session: "s", State: nodemark.Draining, Taints: []record.Taint{taint}}},
		{"uncordoned by hand", byAPerson(marked(false, taint)), Node{Exists: true, Session: "s", State: nodemark.Draining, Taints: []record.Taint{taint}, Released: true}},
		{"untainted by hand", byAPerson(marked(true)), Node{Exists: true, Session: "s", State: nodemark.Draining, Unschedulable: true, Released: true}},
		{"preexisting taint gone", claiming(marked(true), `[{"key":"gpu","value":"true","effect":"NoSchedule","preExisting":true}]`),
			Node{Exists: true, Session: "s", State: nodemark.Draining, Unschedulable: true}},
		{"broken claim", claiming(marked(true), `[{`), Node{Exists: true, Session: "s", State: nodemark.Draining, Unschedulable: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, NodeOf(tt.node)); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
		})
	}
}

func marked(cordoned bool, taints ...record.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{nodemark.StateLabel: string(nodemark.Draining)},
		Annotations: map[string]string{
			nodemark.SessionAnnotation:                  "s",
			nodemark.QuarantineHealthEventIsCordoned:    nodemark.True,
			nodemark.QuarantineHealthEventAppliedTaints: `[{"key":"gpu","value":"true","effect":"NoSchedule"}]`,
		},
	}}
	n.Spec.Unschedulable = cordoned
	for _, t := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return n
}

func claiming(n *corev1.Node, taints string) *corev1.Node {
	n.Annotations[nodemark.QuarantineHealthEventAppliedTaints] = taints
	return n
}

// draining is a view in mid-drain with n pods of namespace ns.
func draining(ns string, n int) View {
	v := View{
		Node:     Node{Exists: true, Session: "r1", State: nodemark.Draining, Unschedulable: true},
		Attempts: map[types.UID]Attempt{},
		Records: []record.Record{{
			ID: "r1", CreatedAt: start, Event: record.Event{ID: "r1", ProcessingStrategy: record.Process},
			Status: record.Status{
				NodeQuarantined: record.Quarantined, Session: "r1", Faults: []record.Fault{{Key: "k"}},
				QuarantineVerdict:      &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}},
				UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionInProgress},
			},
		}},
	}
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("p%03d", i), UID: types.UID(fmt.Sprint(i))}}
		v.Pods = append(v.Pods, p)
	}
	return v
}

func policy(t *testing.T) Policy {
	t.Helper()
	c := eviction.Default()
	c.UserNamespaces = []eviction.NamespaceRule{{Name: "now", Mode: eviction.Immediate}, {Name: "later", Mode: eviction.DeleteAfterTimeout}}
	p, err := c.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return DefaultPolicy(p)
}

func TestPodsGoInBatches(t *testing.T) {
	p := policy(t)
	for _, tt := range []struct {
		ns   string
		at   time.Time
		kind Kind
	}{{"now", start, Evict}, {"later", start.Add(time.Hour), Delete}} {
		s := Next(draining(tt.ns, 100), p, tt.at)
		if s.Kind != tt.kind || len(s.Pods) != p.Batch || s.Left != 100 {
			t.Errorf("%s: %s of %d pods, %d left; want %s of %d, 100 left", tt.ns, s.Kind, len(s.Pods), s.Left, tt.kind, p.Batch)
		}
	}
}

func TestTriesAreSpaced(t *testing.T) {
	p := policy(t)
	tests := []struct {
		name    string
		attempt Attempt
		after   time.Duration
	}{
		{"accepted", Attempt{Result: Accepted}, p.Settle},
		{"refused once", Attempt{Result: Refused, Tries: 1}, 5 * time.Second},
		{"refused thrice", Attempt{Result: Refused, Tries: 3}, 20 * time.Second},
		{"refused for ever", Attempt{Result: Refused, Tries: 1000}, time.Minute},
		{"the budget allows by now", Attempt{Result: Refused, Tries: 1, Allows: true}, time.Second},
		{"the budget has allowed in vain", Attempt{Result: Refused, Tries: 2, Allows: true}, 2 * time.Second},
		{"the budget allows in vain for ever", Attempt{Result: Refused, Tries: 1000, Allows: true}, 5 * time.Second},
		{"errored", Attempt{Result: Errored, Tries: 2}, 10 * time.Second},
		{"asked to wait", Attempt{Result: Errored, Tries: 9, After: 3 * time.Second}, 3 * time.Second},
		{"asked to wait for ever", Attempt{Result: Errored, Tries: 9, After: time.Hour}, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := draining("now", 1)
			tt.attempt.At = start
			v.Attempts["0"] = tt.attempt
			v.ReportedAt = start.Add(time.Hour) // no report in the way
			if s := Next(v, p, start.Add(tt.after-1)); s.Kind != Wait || s.Until.After(start.Add(tt.after)) {
				t.Errorf("before: %s until %s, want to wait until %s", s.Kind, s.Until, tt.after)
			}
			if s := Next(v, p, start.Add(tt.after)); s.Kind != Evict {
				t.Errorf("then: %s, want %s", s.Kind, Evict)
			}
		})
	}
}

func TestAForcedDeletionIsNotRepeated(t *testing.T) {
	v, none := draining("later", 1), int64(0)
	end := metav1.NewTime(start.Add(time.Hour))
	v.Pods[0].DeletionTimestamp = &end
	if s := Next(v, policy(t), start.Add(time.Hour)); s.Kind != Delete {
		t.Errorf("terminating with grace: %s, want %s", s.Kind, Delete)
	}
	v.Pods[0].DeletionGracePeriodSeconds = &none
	if s := Next(v, policy(t), start.Add(time.Hour)); s.Kind != Wait || s.Why != PodsTerminating {
		t.Errorf("deleted without grace: %s %s, want %s %s", s.Kind, s.Why, Wait, PodsTerminating)
	}
}

func TestProgressIsWrittenSeldomAndOnlyWhenItChanged(t *testing.T) {
	v, p := draining("other", 2), policy(t)
	s := Next(v, p, start)
	if len(s.Updates) != 1 {
		t.Fatalf("first look: updates %v, want one", s.Updates)
	}
	v.Records[0].Status = s.Updates[0].On(v.Records[0].Status, start)
	v.ReportedAt = start
	if s := Next(v, p, start.Add(time.Hour)); len(s.Updates) != 0 {
		t.Errorf("nothing changed: updates %v", s.Updates)
	}
	v.Pods = v.Pods[:1]
	if s := Next(v, p, start.Add(time.Second)); len(s.Updates) != 0 || !s.Until.Equal(start.Add(p.ReportEvery)) {
		t.Errorf("too soon: updates %v until %s, want none until %s", s.Updates, s.Until, start.Add(p.ReportEvery))
	}
	s = Next(v, p, start.Add(p.ReportEvery))
	if len(s.Updates) != 1 || !strings.HasPrefix(s.Updates[0].Status.Message, "1 of 2 pods left") {
		t.Errorf("later: updates %v, want 1 of 2 pods left", s.Updates)
	}
}

func TestProgressIsBounded(t *testing.T) {
	v, p := draining("now", 500), policy(t)
	for i := range v.Pods {
		v.Attempts[types.UID(fmt.Sprint(i))] = Attempt{At: start, Result: Errored, Tries: 1, Message: strings.Repeat("x", 10000)}
	}
	s := Next(v, p, start)
	if len(s.Updates) != 1 || len(s.Updates[0].Status.Message) > 1024 {
		t.Fatalf("updates %v, want one of at most 1024 bytes", s.Updates)
	}
	if got := s.Updates[0].Status.Message; !strings.HasSuffix(got, "and 495 more") || s.Why != EvictionErrored {
		t.Errorf("%s: %s, want %s ... and 495 more", s.Why, got, EvictionErrored)
	}
}

func TestForceAndSkipTogetherAreDropped(t *testing.T) {
	v := draining("other", 1)
	v.Records[0].Event.DrainOverrides = &record.Override{Force: true, Skip: true}
	if s := Next(v, policy(t), start); s.Kind != Wait || s.Why != AwaitingCompletion {
		t.Errorf("%s %s, want %s %s", s.Kind, s.Why, Wait, AwaitingCompletion)
	}
}

func TestTheDeadlineCountsFromTheOldestFault(t *testing.T) {
	v, p := draining("later", 1), policy(t)
	second := v.Records[0]
	second.ID, second.CreatedAt = "r2", start.Add(-time.Minute)
	second.Status.UserPodsEvictionStatus = record.EvictionStatus{}
	v.Records = append(v.Records, second)
	for at, want := range map[time.Duration]Kind{59*time.Minute - 1: Wait, 59 * time.Minute: Delete} {
		if s := Next(v, p, start.Add(at)); s.Kind != want {
			t.Errorf("after %s: %s %s, want %s", at, s.Kind, s.Why, want)
		}
	}
}

// TestAClockThatIsSetBackDelaysNothing: what was tried or written "later" than
// now was so before the jump.
func TestAClockThatIsSetBackDelaysNothing(t *testing.T) {
	v, p := draining("now", 1), policy(t)
	v.Attempts["0"] = Attempt{At: start, Result: Refused, Tries: 1000}
	if s := Next(v, p, start.Add(-time.Hour)); s.Kind != Evict {
		t.Errorf("%s %s until %s, want %s", s.Kind, s.Why, s.Until, Evict)
	}
	v = draining("other", 1)
	v.ReportedAt = start
	if s := Next(v, p, start.Add(-time.Hour)); len(s.Updates) != 1 {
		t.Errorf("%s %s with updates %v, want progress to be written", s.Kind, s.Why, s.Updates)
	}
	// Ahead of the clock that marked a pod not ready, and of the fault itself.
	v = draining("later", 1)
	if s := Next(v, p, start.AddDate(-1, 0, 0)); s.Kind != Wait || s.Until.After(start.AddDate(-1, 0, 0).Add(p.Recheck)) {
		t.Errorf("%s until %s, want to look again within %s", s.Kind, s.Until, p.Recheck)
	}
}

// TestADrainIsTheSessions: a record of another session has no part in it.
func TestADrainIsTheSessions(t *testing.T) {
	v := draining("now", 1)
	v.Records[0].Status.UserPodsEvictionStatus.Status = record.EvictionUnset
	other := v.Records[0]
	other.ID, other.Status.Session = "r2", "r2"
	v.Records = append(v.Records, other)
	if s := Next(v, policy(t), start); s.Kind != Start || len(s.Updates) != 1 || s.Updates[0].ID != "r1" {
		t.Errorf("%s with updates %v, want %s with that of r1", s.Kind, s.Updates, Start)
	}
	for name, change := range map[string]func(*View){
		"not quarantined": func(v *View) { v.Records[0].Status.NodeQuarantined = "" },
		"drained, not quarantined": func(v *View) {
			v.Records[0].Status.UserPodsEvictionStatus.Status, v.Records[0].Status.NodeQuarantined = record.EvictionSucceeded, ""
		},
		"drained, in no session": func(v *View) {
			v.Records[0].Status.UserPodsEvictionStatus.Status, v.Records[0].Status.Session, v.Node.Session = record.EvictionSucceeded, "", ""
		},
	} {
		v := draining("now", 1)
		change(&v)
		if s := Next(v, policy(t), start); s.Kind != Nothing || s.Why != NoOpenWork {
			t.Errorf("%s: %s %s with updates %v", name, s.Kind, s.Why, s.Updates)
		}
	}
}

// TestKindsOfSteps: which need facts from the API server itself, and which end a pass.
func TestKindsOfSteps(t *testing.T) {
	for kind, want := range map[Kind]struct {
		reads Reads
		ends  bool
	}{
		Start: {}, Cancel: {}, Fail: {}, LeaveAlone: {}, Wait: {ends: true}, Nothing: {ends: true},
		Evict: {reads: Reads{Node: true}}, Delete: {reads: Reads{Node: true}}, Finish: {reads: Reads{Node: true, Pods: true}},
	} {
		if s := (Step{Kind: kind}); Needs(s) != want.reads || s.EndsPass() != want.ends {
			t.Errorf("%s: needs %+v, ends the pass %t", kind, Needs(s), s.EndsPass())
		}
	}
	s := Step{Kind: Cancel}
	v := draining("now", 0)
	s.update(v.Records[0], record.EvictionCanceled, "")
	if status, ok := s.Updated(v.Records[0], start); !ok || status.UserPodsEvictionStatus.Status != record.EvictionCanceled {
		t.Errorf("updated %t: %+v", ok, status)
	}
	if _, ok := s.Updated(record.Record{ID: "r2"}, start); ok {
		t.Error("another record is updated")
	}
}

// TestNothingIsTakenAwayOutsideASession: whatever the records and the Node
// show, pods go only with an open record whose drain is InProgress, or done and not
// repaired, and a Node that bears its session and keeps new pods away.
func TestNothingIsTakenAwayOutsideASession(t *testing.T) {
	changes := map[string]func(*View){
		"cleared":     func(v *View) { v.Records[0].Status.Faults[0].ClearedTimestamp = &start },
		"cancelled":   func(v *View) { v.Records[0].Status.NodeQuarantined = record.QuarantineCanceled },
		"held":        func(v *View) { v.Records[0].Status.QuarantineVerdict.Reason = record.Held },
		"dry run":     func(v *View) { v.Records[0].Status.QuarantineVerdict.Reason = record.DryRun },
		"stored only": func(v *View) { v.Records[0].Event.ProcessingStrategy = record.PersistOnly },
		"a recovery":  func(v *View) { v.Records[0].Event.IsHealthy = true },
		"no node":     func(v *View) { v.Node = Node{} },
		"no session":  func(v *View) { v.Node.Session = "" },
		"another":     func(v *View) { v.Node.Session = "r2" },
		"schedulable": func(v *View) { v.Node.Unschedulable = false },
		"released":    func(v *View) { v.Node.Released = true },
		"no marks":    func(v *View) { v.Records[0].Status.QuarantineVerdict.Effects = record.Effects{} },
		"not begun":   func(v *View) { v.Records[0].Status.UserPodsEvictionStatus.Status = record.EvictionUnset },
		"failed":      func(v *View) { v.Records[0].Status.UserPodsEvictionStatus.Status = record.EvictionFailed },
		"repaired": func(v *View) {
			v.Records[0].Status.UserPodsEvictionStatus.Status = record.EvictionSucceeded
			v.Records[0].Status.FaultRemediated = record.Yes()
		},
		"skipped": func(v *View) {
			v.Records[0].Status.UserPodsEvictionStatus.Status = record.AlreadyDrained
			v.Records[0].Event.DrainOverrides = &record.Override{Skip: true}
		},
		"drained and released": func(v *View) {
			v.Records[0].Status.UserPodsEvictionStatus.Status = record.EvictionSucceeded
			v.Node.Released = true
		},
		"no record": func(v *View) { v.Records = nil },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			v := draining("now", 3)
			change(&v)
			if s := Next(v, policy(t), start.Add(24*time.Hour)); len(s.Pods) > 0 {
				t.Errorf("%s %s of %d pods", s.Kind, s.Why, len(s.Pods))
			}
		})
	}
	if s := Next(draining("now", 3), policy(t), start); s.Kind != Evict {
		t.Errorf("unchanged: %s %s, want %s", s.Kind, s.Why, Evict)
	}
}
