package marks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// marked is a node with the marks of a fault.
func marked(node *corev1.Node, effects record.Effects) *corev1.Node {
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", effects)}), now)
	return node
}

func cordoned(node *corev1.Node) *corev1.Node {
	node.Spec.Unschedulable = true
	return node
}

// TestKeep: what a Node bears stays while the store does not know its faults.
func TestKeep(t *testing.T) {
	fault := record.Label{Key: "fault", Value: "gpu"}
	all := marked(bare(), everything())
	for name, tt := range map[string]struct {
		desired []record.Record
		node    *corev1.Node
		unknown []string
		want    marks.Desired // Faults and RuleSets left out
		lost    int
	}{
		"the store knows nothing": {nil, all, []string{"f1"}, marks.Desired{Session: "f1", Effects: record.Effects{
			Cordon: true, Taints: []record.Taint{gpu}, Labels: []record.Label{fault},
		}}, 1},
		"it knows another fault": {[]record.Record{open("f2", "f2", record.Effects{})}, all, []string{"f1"}, marks.Desired{Session: "f2", Effects: record.Effects{
			Cordon: true, Taints: []record.Taint{gpu}, Labels: []record.Label{fault},
		}}, 1},
		"it knows the fault":       {[]record.Record{open("f1", "f1", everything())}, all, []string{"f1"}, marks.Desired{Session: "f1", Effects: everything()}, 0},
		"another one is unknown":   {nil, all, []string{"f2"}, marks.Desired{Session: "f1", Effects: record.Effects{Cordon: true, Taints: []record.Taint{gpu}, Labels: []record.Label{fault}}}, 0},
		"somebody else's cordon":   {nil, marked(cordoned(bare()), record.Effects{Cordon: true}), nil, marks.Desired{Session: "f1", Effects: record.Effects{Cordon: true}}, 0},
		"a node without a cordon":  {nil, marked(bare(), record.Effects{Taints: []record.Taint{gpu}}), nil, marks.Desired{Session: "f1", Effects: record.Effects{Taints: []record.Taint{gpu}}}, 0},
		"a node without our marks": {[]record.Record{open("f2", "f2", record.Effects{Cordon: true})}, bare(), nil, marks.Desired{Session: "f2", Effects: record.Effects{Cordon: true}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := marks.Of(tt.desired).Keep(tt.node, tt.unknown)
			if len(got.Lost) != tt.lost {
				t.Errorf("%d faults are lost, want %d", len(got.Lost), tt.lost)
			}
			tt.want.Unknown = tt.unknown
			got.Lost, got.Faults, got.RuleSets = nil, nil, nil
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestReasonOfACordon: the label names the rule sets, or stays while they are not known.
func TestReasonOfACordon(t *testing.T) {
	known := marks.Of([]record.Record{open("f1", "f1", everything())})
	known.RuleSets = []string{"another"}
	nameless := marks.Desired{Session: "f1", Effects: record.Effects{Cordon: true}}
	for name, tt := range map[string]struct {
		desired marks.Desired
		unknown []string
		want    string
	}{
		"named":                   {known, nil, "another"},
		"named beside an unknown": {known, []string{"f2"}, "another"},
		"all are unknown":         {marks.Desired{}, []string{"f1"}, "GPU-fatal-rule"},
		"nameless":                {nameless, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := marked(bare(), everything())
			mutator.Apply(node, tt.desired.Keep(node, tt.unknown), now)
			if got := node.Labels["k8saas.nvidia.com/cordon-reason"]; got != tt.want {
				t.Errorf("reason %q, want %q", got, tt.want)
			}
		})
	}
}

// TestOf: the effects of all open records together; of two labels of a key that of the
// older record, and the names of the sets that cordon.
func TestOf(t *testing.T) {
	label := func(key, value string) []record.Label { return []record.Label{{Key: key, Value: value}} }
	tainting := open("f3", "f1", record.Effects{Taints: []record.Taint{gpu}, Labels: label("b", "3")})
	tainting.Status.QuarantineVerdict.RuleSets = []string{"tainting"}
	got := marks.Of([]record.Record{
		open("f1", "f1", record.Effects{Cordon: true, Labels: label("a", "1")}),
		open("f2", "f1", record.Effects{Cordon: true, Taints: []record.Taint{gpu}, Labels: label("a", "2")}), tainting,
	})
	got.Faults = nil
	want := marks.Desired{Session: "f1", RuleSets: []string{"GPU fatal: rule!"}, Effects: record.Effects{
		Cordon: true, Taints: []record.Taint{gpu}, Labels: append(label("a", "1"), label("b", "3")...),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLabelsGoWithTheirFault: unless somebody has given them another value.
func TestLabelsGoWithTheirFault(t *testing.T) {
	label := func(key string) record.Effects {
		return record.Effects{Cordon: true, Labels: []record.Label{{Key: key, Value: "ours"}}}
	}
	both := []record.Record{open("f1", "f1", label("a")), open("f2", "f1", label("b")), open("f3", "f1", label("c"))}
	node := bare()
	mutator.Apply(node, marks.Of(both), now)
	node.Labels["c"] = "theirs"
	mutator.Apply(node, marks.Of(both[:1]), now)
	if a, b, c := node.Labels["a"], node.Labels["b"], node.Labels["c"]; a != "ours" || b != "" || c != "theirs" {
		t.Errorf("labels a=%s b=%s c=%s", a, b, c)
	}
}

// byAPerson has the API server note that a person lifted a mark of a Node.
func byAPerson(node *corev1.Node) { nodemark.Annotate(node, nodemark.LiftedByAnnotation, "alice") }

// TestTaintIsNotRestored: one that a person took away is the person's release, which the
// next evaluation sees.
func TestTaintIsNotRestored(t *testing.T) {
	node := marked(bare(), everything())
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(x corev1.Taint) bool { return x.Key == gpu.Key })
	byAPerson(node)
	mutator.Apply(node, marks.Of([]record.Record{open("f1", "f1", everything())}), now.Add(time.Minute))
	if nodemark.HasTaint(node, gpu) || nodemark.Read(node).Released != nodemark.ByUntaint {
		t.Errorf("taints %v, released by %q", node.Spec.Taints, nodemark.Read(node).Released)
	}
}

// TestUnknownFaultsAreBounded: of very many faults that the store has lost, a Node lists
// some.
func TestUnknownFaultsAreBounded(t *testing.T) {
	node, ids := bare(), make([]string, 500)
	for i := range ids {
		ids[i] = fmt.Sprint("f", i)
	}
	mutator.Apply(node, marks.Desired{Session: "f0", Unknown: ids}, now)
	if listed := strings.Split(node.Annotations[nodemark.UnknownAnnotation], ","); len(listed) != 64 || listed[63] != "f63" {
		t.Errorf("%d faults are listed: %v", len(listed), listed)
	}
}
