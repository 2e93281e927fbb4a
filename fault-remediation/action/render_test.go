package action_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// rendered makes the object of a template for a fault of node-1.
func rendered(t *testing.T, template, apiVersion, message string) (*unstructured.Unstructured, error) {
	t.Helper()
	group, version, _ := strings.Cut(apiVersion, "/")
	config := action.Default()["RESTART_VM"]
	config.APIGroup, config.Version, config.TemplateFileName = group, version, ""
	config.Template = "apiVersion: " + apiVersion + "\nkind: RebootNode\n" + template
	p, err := action.Compile(map[string]action.Config{"RESTART_VM": config}, action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := p.Of(record.ActionRestartVM)
	e := record.Event{NodeName: "node-1", Message: message, ErrorCode: []string{"79"}}
	return a.Render(record.Record{ID: "r1", Event: e}, record.Attempt{Name: "n", Session: "s", Group: "restart", Ordinal: 1})
}

const hostile = "x\"\u2028  nodeName: victim\u2028  force: true #"

// TestRenderRefusesAnotherNode: whatever a text of the event made of the template.
func TestRenderRefusesAnotherNode(t *testing.T) {
	const janitor, other = "janitor.dgxc.nvidia.com/v1alpha1", "example.com/v1"
	tests := map[string]struct{ template, apiVersion, message, want string }{
		"its own node":            {"spec: {nodeName: {{ .NodeName }}}", janitor, "", ""},
		"a text that breaks out":  {"spec:\n  nodeName: {{ .NodeName }}\n  reason: \"{{ .HealthEvent.Message }}\"\n", janitor, hostile, "victim"},
		"of another kind as well": {"spec:\n  reason: \"{{ .HealthEvent.Message }}\"\n", other, hostile, "victim"},
		"a flow that goes on":     {"spec: {reason: {{ .HealthEvent.Message }}}", other, "x, nodeName: victim", "victim"},
		"another kind, no node":   {"spec: {reason: {{ quote .HealthEvent.Message }}}", other, hostile, ""},
		"quoted":                  {"spec:\n  nodeName: {{ quote .NodeName }}\n  reason: {{ quote .HealthEvent.Message }}\n", janitor, hostile, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj, err := rendered(t, tt.template, tt.apiVersion, tt.message)
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("object %v, error %v", obj, err)
			}
		})
	}
	config := action.Default()["RESTART_VM"]
	config.TemplateFileName, config.Template = "", "apiVersion: "+janitor+"\nkind: RebootNode\nspec: {force: false}\n"
	if _, err := action.Compile(map[string]action.Config{"RESTART_VM": config}, action.Templates{}, nil); err == nil || !strings.Contains(err.Error(), "spec.nodeName") {
		t.Errorf("a RebootNode of no node: %v", err)
	}
}

// TestTemplateFunctions: what they make, YAML reads back unchanged.
func TestTemplateFunctions(t *testing.T) {
	for _, text := range []string{"plain", hostile, "a: b # c", "{{ x }}", "\u00e9\u0085\u2029\x00\x7f\U0001f525", "- 'a'", "", "0123", "\\n"} {
		obj, err := rendered(t, "spec:\n  nodeName: node-1\n  q: {{ quote .HealthEvent.Message }}\n  j: {{ toJson .HealthEvent.Message }}\n  c: {{ toJson .HealthEvent.ErrorCode }}\n",
			"janitor.dgxc.nvidia.com/v1alpha1", text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		spec, _ := obj.Object["spec"].(map[string]any)
		if diff := cmp.Diff(map[string]any{"nodeName": "node-1", "q": text, "j": text, "c": []any{"79"}}, spec); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
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
		if !strings.HasPrefix(got, string(name)+" requires manual intervention: ") || !strings.Contains(got, "node-1") {
			t.Errorf("NextStep(%s) = %q", name, got)
		}
	}
	if got := action.NextStep("SWAP_DISK", "n"); !strings.Contains(got, `configure [remediationActions."SWAP_DISK"]`) {
		t.Errorf("an unconfigured custom action gives %q", got)
	}
}
