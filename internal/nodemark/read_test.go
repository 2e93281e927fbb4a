package nodemark_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

var (
	testTaint = record.Taint{Key: "gpu", Value: "xid", Effect: "NoSchedule"}
	out       = record.Taint{Key: "gpu", Value: "xid", Effect: "NoExecute"}
	mild      = record.Taint{Key: "gpu", Value: "xid", Effect: "PreferNoSchedule"}
)

// nodeWith has these annotations and taints, and is cordoned or not.
func nodeWith(annotations map[string]string, cordoned bool, taints ...record.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: annotations}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
	for _, t := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return n
}

// TestReadExistingMarks reads a node with every mark, and one with none.
func TestReadExistingMarks(t *testing.T) {
	full := nodeWith(map[string]string{
		nodemark.SessionAnnotation: "s1", nodemark.UnknownAnnotation: "f1,f2", nodemark.RepairAnnotation: "u1", nodemark.ResetAnnotation: "u2",
		nodemark.QuarantineHealthEventIsCordoned: "True", nodemark.QuarantineHealthEventCordonPreExisting: "True",
		nodemark.QuarantineHealthEventAppliedTaints: `[{"key":"gpu","value":"xid","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule","preExisting":true}]`,
		nodemark.QuarantineHealthEventAppliedLabels: `[{"key":"l","value":"v"}]`,
		nodemark.QuarantinedNodeUntaintedManually:   "True", nodemark.ReleasedAnnotation: "f3,f4",
		nodemark.RepeatOffenderAnnotation: "{}", nodemark.CanaryAnnotation: "c1",
	}, true, testTaint)
	full.Labels = map[string]string{nodemark.StateLabel: "draining", nodemark.ManagedLabel: "false", nodemark.RepeatOffenderLabel: "true"}
	want := nodemark.Marks{
		Session: "s1", Unknown: []string{"f1", "f2"}, State: nodemark.Draining, Claim: "u1", Reset: "u2",
		Applied: nodemark.Applied{
			Cordon: true, CordonPreExisting: true,
			Taints: []nodemark.AppliedTaint{{Taint: testTaint}, {Taint: record.Taint{Key: "a", Effect: "NoSchedule"}, PreExisting: true}},
			Labels: []record.Label{{Key: "l", Value: "v"}},
		},
		LetGo: true, Ended: []string{"f3", "f4"}, OptedOut: true, RepeatOffender: nodemark.RepeatOffenderMark{Label: true, Note: "{}"}, Canary: "c1",
	}
	if diff := cmp.Diff(want, nodemark.Read(full)); diff != "" {
		t.Errorf("every mark (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(nodemark.Marks{Schedulable: true}, nodemark.Read(&corev1.Node{})); diff != "" {
		t.Errorf("no mark (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(nodemark.Marks{}, nodemark.Read(nil)); diff != "" {
		t.Errorf("no Node (-want +got):\n%s", diff)
	}
}

// TestHostileAnnotations: what somebody broke neither releases a node, nor takes
// a foreign mark away, nor makes the node count as kept empty; and what the store does
// not know stays unknown, whatever stands there.
func TestHostileAnnotations(t *testing.T) {
	const session = nodemark.SessionAnnotation
	taints := func(text string) map[string]string {
		return map[string]string{session: "s1", nodemark.QuarantineHealthEventAppliedTaints: text}
	}
	whole := `{"key":"gpu","value":"xid","effect":"NoSchedule"}`
	for name, tt := range map[string]struct {
		annotations map[string]string
		cordoned    bool
		taints      []record.Taint
		applied     int
		released    nodemark.ReleaseCause
		schedulable bool
		unknown     int
	}{
		"a taint of ours":                      {taints("[" + whole + "]"), false, []record.Taint{testTaint}, 1, nodemark.NotReleased, false, 0},
		"it is gone":                           {taints("[" + whole + "]"), false, nil, 1, nodemark.NotReleased, true, 0},
		"it has another effect":                {taints("[" + whole + "]"), false, []record.Taint{out}, 1, nodemark.NotReleased, true, 0},
		"one that was there before is gone":    {taints(`[{"key":"gpu","value":"xid","effect":"NoSchedule","preExisting":true}]`), false, nil, 1, nodemark.NotReleased, true, 0},
		"one that was there before is there":   {taints(`[{"key":"gpu","value":"xid","effect":"NoSchedule","preExisting":true}]`), false, []record.Taint{testTaint}, 1, nodemark.NotReleased, false, 0},
		"a mild taint keeps nothing off":       {taints(`[{"key":"gpu","value":"xid","effect":"PreferNoSchedule"}]`), false, []record.Taint{mild}, 1, nodemark.NotReleased, true, 0},
		"a foreign taint is not the session's": {taints("[]"), false, []record.Taint{testTaint}, 0, nodemark.NotReleased, true, 0},
		"not JSON":                             {taints("["), false, nil, 0, nodemark.NotReleased, true, 0},
		"an object":                            {taints(whole), false, []record.Taint{testTaint}, 0, nodemark.NotReleased, true, 0},
		"null":                                 {taints("null"), false, nil, 0, nodemark.NotReleased, true, 0},
		"half of it can be read":               {taints("[" + whole + ", 5]"), false, nil, 0, nodemark.NotReleased, true, 0},
		"a number for a key":                   {taints(`[{"key":5}]`), false, nil, 0, nodemark.NotReleased, true, 0},
		"a text for a truth":                   {taints(`[{"key":"gpu","preExisting":"yes"}]`), false, nil, 0, nodemark.NotReleased, true, 0},
		"text behind it":                       {taints("[" + whole + "] " + "x"), false, nil, 0, nodemark.NotReleased, true, 0},
		"broken, but cordoned":                 {taints("["), true, nil, 0, nodemark.NotReleased, false, 0},
		"our cordon is gone":                   {map[string]string{session: "s1", nodemark.QuarantineHealthEventIsCordoned: "True"}, false, nil, 0, nodemark.NotReleased, true, 0},
		"our cordon is gone, no session":       {map[string]string{nodemark.QuarantineHealthEventIsCordoned: "True"}, false, nil, 0, nodemark.NotReleased, true, 0},
		"True in another case is not a yes":    {map[string]string{session: "s1", nodemark.QuarantineHealthEventIsCordoned: "true"}, false, nil, 0, nodemark.NotReleased, true, 0},
		"unknown: commas alone":                {map[string]string{session: "s1", nodemark.UnknownAnnotation: ","}, true, nil, 0, nodemark.NotReleased, false, 2},
		"unknown: a blank":                     {map[string]string{session: "s1", nodemark.UnknownAnnotation: " "}, true, nil, 0, nodemark.NotReleased, false, 1},
		"unknown: empty":                       {map[string]string{session: "s1", nodemark.UnknownAnnotation: ""}, true, nil, 0, nodemark.NotReleased, false, 0},
	} {
		m := nodemark.Read(nodeWith(tt.annotations, tt.cordoned, tt.taints...))
		if len(m.Applied.Taints) != tt.applied || m.Released != tt.released || m.Schedulable != tt.schedulable || len(m.Unknown) != tt.unknown {
			t.Errorf("%s: %d taints of ours, released by %q, schedulable %v, %d unknown", name, len(m.Applied.Taints), m.Released, m.Schedulable, len(m.Unknown))
		}
	}
}

// TestABrokenListOfLabelsNamesNone: not even those that can be read.
func TestABrokenListOfLabelsNamesNone(t *testing.T) {
	for _, text := range []string{"", "[", "{}", `[{"key":"a","value":"b"},{"key":1}]`, `[{"key":"a","value":"b"}`} {
		if got := nodemark.Read(nodeWith(map[string]string{nodemark.QuarantineHealthEventAppliedLabels: text}, false)).Applied.Labels; got != nil {
			t.Errorf("%q names %v", text, got)
		}
	}
}

// TestHasMarks: any one annotation of fault-quarantine is a mark, an empty one too;
// those that outlive a session, and those of others, are none.
func TestHasMarks(t *testing.T) {
	for key, want := range map[string]bool{
		nodemark.SessionAnnotation: true, nodemark.UnknownAnnotation: true, nodemark.QuarantineHealthEvent: true,
		nodemark.QuarantineHealthEventAppliedTaints: true, nodemark.QuarantineHealthEventAppliedLabels: true,
		nodemark.QuarantineHealthEventIsCordoned: true, nodemark.QuarantineHealthEventCordonPreExisting: true,
		nodemark.QuarantinedNodeUncordonedManually: false, nodemark.ReleasedAnnotation: false, nodemark.RepairAnnotation: false,
		nodemark.RepeatOffenderAnnotation: false, "foreign": false,
	} {
		if got := nodemark.HasMarks(nodeWith(map[string]string{key: ""}, false)); got != want {
			t.Errorf("%s alone: %v, want %v", key, got, want)
		}
	}
}

// TestListedFaults: each entry is read for itself; one that is cut is not whole.
func TestListedFaults(t *testing.T) {
	entities := func(n int) (out []record.Entity) {
		return slices.Repeat([]record.Entity{{EntityType: "GPU", EntityValue: "1"}}, n)
	}
	node := nodeWith(nil, false)
	nodemark.ListFaults(node, []json.RawMessage{json.RawMessage(`{"id":"lost"}`), json.RawMessage(`5`), json.RawMessage(`{"nodeName":"n"}`), json.RawMessage(`{"id":"newer","recommendedAction":"NEWER_ACTION"}`)}, []record.Event{
		{ID: "f1", NodeName: "n", EntitiesImpacted: entities(15)}, {ID: "f2", NodeName: "n", EntitiesImpacted: entities(40)},
	})
	got := map[string]bool{}
	for _, f := range nodemark.ListedFaults(node) {
		got[f.Event.ID] = f.Complete
	}
	if diff := cmp.Diff(map[string]bool{"lost": true, "newer": false, "f1": true, "f2": false}, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "{", "{}", "null", `[{"id":"f1"}`} {
		if got := nodemark.ListedFaults(nodeWith(map[string]string{nodemark.QuarantineHealthEvent: text}, false)); got != nil {
			t.Errorf("%q lists %v", text, got)
		}
	}
}

// TestRepairsRoundTrip: repairs are read as written, and a malformed text is read as none.
func TestRepairsRoundTrip(t *testing.T) {
	r := nodemark.Repairs{
		EquivalenceGroups: map[string]nodemark.RepairObject{"restart": {MaintenanceCR: "n-1", ActionName: "RESTART_BM"}},
		NeedsHuman:        []nodemark.Call{{Record: "f1", Action: "RESTART_BM", Reason: "Exhausted", Message: "look"}},
	}
	if diff := cmp.Diff(r, nodemark.ParseRepairs(r.Text())); diff != "" {
		t.Errorf("read (-written +read):\n%s", diff)
	}
	for _, text := range []string{"", "[", "[]", `{"needsHuman":[{"record":"f1"}],"equivalenceGroups":5}`} {
		if got := nodemark.ParseRepairs(text).Text(); got != "" {
			t.Errorf("%q shows %s", text, got)
		}
	}
}

// TestDevices: who has no annotation is not known to hold anything, who has a
// broken one may hold everything.
func TestDevices(t *testing.T) {
	text := nodemark.EncodeDevices(map[string][]string{"nvidia.com/gpu": {"GPU-2", "GPU-1", "GPU-2"}})
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        map[string][]string
		ok          bool
	}{
		"what is written":   {map[string]string{nodemark.DevicesAnnotation: text}, map[string][]string{"nvidia.com/gpu": {"GPU-1", "GPU-2"}}, true},
		"no annotation":     {nil, nil, true},
		"empty":             {map[string]string{nodemark.DevicesAnnotation: ""}, nil, false},
		"not JSON":          {map[string]string{nodemark.DevicesAnnotation: "GPU-1"}, nil, false},
		"a list":            {map[string]string{nodemark.DevicesAnnotation: "[]"}, nil, false},
		"a text for a list": {map[string]string{nodemark.DevicesAnnotation: `{"devices":{"nvidia.com/gpu":"GPU-1"}}`}, nil, false},
		"no devices":        {map[string]string{nodemark.DevicesAnnotation: "{}"}, nil, true},
	} {
		got, ok := nodemark.Devices(tt.annotations)
		if ok != tt.ok || !cmp.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	if got := nodemark.EncodeDevices(nil); got != "" {
		t.Errorf("nothing is written as %q", got)
	}
}

// TestClearings leaves out what names no record or no person.
func TestClearings(t *testing.T) {
	p := nodemark.ClearPrefix
	got := nodemark.Clearings(map[string]string{
		p + "r1": "ann: seen: fine", p + "r2": "ann", p + "r3": ": why", p: "ann: why", "foreign/r4": "ann: why", p + "r5": "",
	})
	if diff := cmp.Diff([]nodemark.Clearing{{Record: "r1", By: "ann", Reason: "seen: fine"}}, got); diff != "" {
		t.Errorf("clearings (-want +got):\n%s", diff)
	}
}

// TestWritersUndoTheirChanges: each mark is written on a bare Node, and taken away.
func TestWritersUndoTheirChanges(t *testing.T) {
	for name, tt := range map[string]struct{ do, undo func(*corev1.Node) }{
		"state":  {func(n *corev1.Node) { nodemark.SetState(n, nodemark.Draining) }, func(n *corev1.Node) { nodemark.SetState(n, "") }},
		"claim":  {func(n *corev1.Node) { nodemark.SetClaim(n, "u") }, func(n *corev1.Node) { nodemark.SetClaim(n, "") }},
		"reset":  {func(n *corev1.Node) { nodemark.SetReset(n, "u") }, func(n *corev1.Node) { nodemark.SetReset(n, "") }},
		"taints": {func(n *corev1.Node) { nodemark.ApplyTaints(n, []nodemark.AppliedTaint{{Taint: mild}}) }, func(n *corev1.Node) { nodemark.ApplyTaints(n, nil) }},
		"labels": {func(n *corev1.Node) { nodemark.ApplyLabels(n, []record.Label{{Key: "a"}}) }, func(n *corev1.Node) { nodemark.ApplyLabels(n, nil) }},
		"lemon": {
			func(n *corev1.Node) {
				nodemark.SetRepeatOffender(n, nodemark.RepeatOffenderMark{Label: true, Note: "{}"})
			},
			func(n *corev1.Node) { nodemark.SetRepeatOffender(n, nodemark.RepeatOffenderMark{}) },
		},
	} {
		bare, node := nodemark.Read(&corev1.Node{}), &corev1.Node{}
		tt.do(node)
		if cmp.Equal(nodemark.Read(node), bare) || len(node.Labels)+len(node.Annotations) == 0 {
			t.Errorf("%s: nothing is written: %+v", name, node.ObjectMeta)
		}
		tt.undo(node)
		if len(node.Labels)+len(node.Annotations) != 0 {
			t.Errorf("%s: something is left: %+v", name, node.ObjectMeta)
		}
	}
	person := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{nodemark.RepeatOffenderLabel: "maybe"}}}
	nodemark.SetRepeatOffender(person, nodemark.RepeatOffenderMark{})
	if person.Labels[nodemark.RepeatOffenderLabel] != "maybe" {
		t.Error("a person's label was taken away")
	}
}
