package action_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
)

func TestRender(t *testing.T) {
	p, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := p.Of(record.ActionRestartVM)
	r := record.Record{ID: "r1", Event: record.Event{NodeName: "node-1", RecommendedAction: record.ActionRestartVM}}
	obj, err := a.Render(r, record.Attempt{Name: "node-1-0a0b0c0d", Session: "s1", Group: "restart", Ordinal: 2})
	if err != nil {
		t.Fatalf("Render: %v", err)
	}
	want := map[string]any{
		"apiVersion": "janitor.dgxc.nvidia.com/v1alpha1", "kind": "RebootNode",
		"metadata": map[string]any{
			"name":   "node-1-0a0b0c0d",
			"labels": map[string]any{"app.kubernetes.io/managed-by": "nvsentinel"},
			"annotations": map[string]any{
				"nvsentinel.nvidia.com/ttl":          "336h",
				"dgxc.nvidia.com/nvsentinel-session": "s1",
				"dgxc.nvidia.com/nvsentinel-record":  "r1",
				"dgxc.nvidia.com/nvsentinel-group":   "restart",
				"dgxc.nvidia.com/nvsentinel-ordinal": "2",
				"dgxc.nvidia.com/nvsentinel-node":    "node-1",
			},
		},
		"spec": map[string]any{"nodeName": "node-1", "force": false},
	}
	if diff := cmp.Diff(want, obj.Object); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

// TestRenderOwnsTheObject: a template can not choose the name, an owner or a
// status, and can not lose our marks.
func TestRenderOwnsTheObject(t *testing.T) {
	doc := strings.Replace(valid, "spec:", `metadata:
  name: mine
  generateName: mine-
  labels: {app.kubernetes.io/managed-by: me, keep: me}
  annotations: {dgxc.nvidia.com/nvsentinel-session: other, keep: me}
  ownerReferences: [{apiVersion: v1, kind: Node, name: x, uid: y}]
status: {conditions: []}
spec:`, 1) + "scope = 'Namespaced'\nnamespace = 'repairs'"
	p, err := compile(t, doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := p.Of(record.ActionRestartVM)
	obj, err := a.Render(record.Record{ID: "r1", Event: record.Event{NodeName: "n"}}, record.Attempt{Name: "ours", Session: "s1", Group: "restart", Ordinal: 1})
	if err != nil {
		t.Fatal(err)
	}
	if obj.GetName() != "ours" || obj.GetGenerateName() != "" || obj.GetNamespace() != "repairs" || obj.GetOwnerReferences() != nil || obj.Object["status"] != nil {
		t.Errorf("object %v", obj.Object)
	}
	if obj.GetLabels()["app.kubernetes.io/managed-by"] != "nvsentinel" || obj.GetLabels()["keep"] != "me" || obj.GetAnnotations()["dgxc.nvidia.com/nvsentinel-session"] != "s1" || obj.GetAnnotations()["keep"] != "me" {
		t.Errorf("marks %v %v", obj.GetLabels(), obj.GetAnnotations())
	}
}

func TestObjectName(t *testing.T) {
	long := strings.Repeat("a", 39) + ".b"
	base := action.ObjectName("node-1", "machine", "session", "restart", 1)
	if !regexp.MustCompile(`^node-1-[0-9a-f]{8}$`).MatchString(base) {
		t.Errorf("name %q", base)
	}
	if again := action.ObjectName("node-1", "machine", "session", "restart", 1); again != base {
		t.Errorf("the same facts give %q and %q", base, again)
	}
	if got := action.ObjectName(long, "m", "s", "g", 1); !regexp.MustCompile(`^a{39}-[0-9a-f]{8}$`).MatchString(got) {
		t.Errorf("a dot at the cut gives %q, which is no DNS name", got)
	}
	for _, other := range []string{
		action.ObjectName("node-1", "machine2", "session", "restart", 1),
		action.ObjectName("node-1", "machine", "session2", "restart", 1),
		action.ObjectName("node-1", "machine", "session", "terminate", 1),
		action.ObjectName("node-1", "machine", "session", "restart", 2),
	} {
		if other == base {
			t.Errorf("another slot gives the same name %q", base)
		}
	}
}

func TestNextStep(t *testing.T) {
	for _, name := range []record.Action{record.ActionContactSupport, record.ActionRunFieldDiag, record.ActionRunDCGMEUD, record.ActionUnknown, "SWAP_DISK"} {
		got := action.NextStep(name, "node-1")
		if !strings.HasPrefix(got, string(name)+" needs a person: ") || !strings.Contains(got, "node-1") {
			t.Errorf("NextStep(%s) = %q", name, got)
		}
	}
	if got := action.NextStep("SWAP_DISK", "n"); !strings.Contains(got, `configure [remediationActions."SWAP_DISK"]`) {
		t.Errorf("an unconfigured custom action gives %q", got)
	}
}
