package reconciler_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

const lateCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.GROUP}
spec:
  group: GROUP
  scope: Cluster
  names: {plural: PLURAL, singular: SINGULAR, kind: KIND, listKind: KINDList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestMissingKind: a kind that nobody serves parks its action; when its CRD
// comes, the object is created, watched, and enqueues its node. Both a group that
// nobody knows and an unknown kind of a known group are missing kinds.
func TestMissingKind(t *testing.T) {
	for name, gvk := range map[string]schema.GroupVersionKind{
		"unknown-group": {Group: "late.example.com", Version: "v1alpha1", Kind: "Rebirth"},
		"known-group":   {Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Kind: "LateReset"},
	} {
		t.Run(name, func(t *testing.T) { testMissingKind(t, gvk) })
	}
}

func testMissingKind(t *testing.T, gvk schema.GroupVersionKind) {
	b := newBench(t)
	b.Repairs = compile(t, action.Configs{"RESTART_VM": {
		APIGroup: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, EquivalenceGroup: "restart", CompleteConditionType: "Done",
		Template: "apiVersion: {{.ApiGroup}}/{{.Version}}\nkind: {{.Kind}}\nspec: {nodeName: {{quote .NodeName}}}\n",
	}})
	repairs, _ := b.Repairs.Of(record.ActionRestartVM)
	own := make(chan bool, 100)
	watch := reconciler.NewWatch(b.Cluster.Dynamic, b.Repairs, slog.New(slog.NewTextHandler(t.Output(), nil)), func(obj *unstructured.Unstructured) bool {
		own <- b.Own(obj)
		return false
	})
	enqueued := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watch.Source(ctx, func(node string) { enqueued <- node }) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Source = %v", err)
		}
	}()

	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.KindMissing)
	b.shows("r1", "null () [1 Unknown uid=false sent=true] label=remediating")
	eventually(t, "readiness names the kind", func() (bool, error) {
		ok, detail := watch.Ready()
		if !ok {
			return false, errors.New("not ready: " + detail)
		}
		return strings.Contains(detail, repairs.Resource+"."+gvk.Group+" is not served"), nil
	})

	plural := repairs.Resource
	crd := strings.NewReplacer("PLURAL", plural, "GROUP", gvk.Group, "SINGULAR", strings.ToLower(gvk.Kind), "KIND", gvk.Kind).Replace(lateCRD)
	if err := b.cluster.Apply(t.Context(), strings.NewReader(crd)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kind is served", func() (bool, error) {
		_, err := b.Cluster.Dynamic.Resource(repairs.GVR()).List(t.Context(), metav1.ListOptions{})
		return err == nil, nil
	})
	b.parks(decision.WaitObject)
	select {
	case node := <-enqueued:
		if node != b.node {
			t.Errorf("enqueued %q, want %q", node, b.node)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the object did not enqueue its node")
	}
	if !<-own {
		t.Error("the object that the reconciler has just created counts as news")
	}
	eventually(t, "readiness is whole again", func() (bool, error) {
		_, detail := watch.Ready()
		return detail == "all maintenance kinds are watched", nil
	})

	name := b.record("r1").Status.Remediation.Attempts[0].Name
	done := []byte(`{"status":{"conditions":[{"type":"Done","status":"True"}]}}`)
	if _, err := b.Cluster.Dynamic.Resource(repairs.GVR()).Patch(t.Context(), name, types.MergePatchType, done, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-enqueued:
	case <-time.After(2 * time.Minute):
		t.Fatal("the object's outcome did not enqueue its node")
	}
	b.parks(decision.WaitRecovery)
}

// eventually polls a condition that the API server or a watch brings about.
func eventually(t *testing.T, what string, met func() (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return met() })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestRelevant(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{nodemark.SessionAnnotation: "s"}}}
		change(n)
		return n
	}
	same := func(*corev1.Node) {}
	repeatOffender := func(label string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{nodemark.RepeatOffenderLabel: label}, Annotations: map[string]string{nodemark.RepeatOffenderAnnotation: "{}"},
		}}
	}
	tests := map[string]struct {
		before, after *corev1.Node
		want          bool
	}{
		"new in quarantine":     {nil, node(same), true},
		"deleted in quarantine": {node(same), nil, true},
		"new without a session": {nil, &corev1.Node{}, false},
		"nothing of ours":       {node(same), node(func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }), false},
		"heartbeat":             {&corev1.Node{}, node(func(n *corev1.Node) { n.Annotations = nil }), false},
		"session begins":        {&corev1.Node{}, node(same), true},
		"session ends":          {node(same), &corev1.Node{}, true},
		"cordoned":              {node(same), node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), true},
		"claimed":               {node(same), node(func(n *corev1.Node) { n.Annotations[nodemark.RepairAnnotation] = "u" }), false},
		"claim gone":            {node(func(n *corev1.Node) { n.Annotations[nodemark.RepairAnnotation] = "u" }), node(same), true},
		"claimed and cordoned": {node(same), node(func(n *corev1.Node) {
			n.Annotations[nodemark.RepairAnnotation] = "u"
			n.Spec.Unschedulable = true
		}), true},
		"a lemon":                 {nil, repeatOffender("true"), true},
		"a lemon, deleted":        {repeatOffender("true"), nil, true},
		"a lemon, unlabelled":     {repeatOffender("true"), repeatOffender(""), true},
		"a lemon, as it was":      {repeatOffender("true"), repeatOffender("true"), false},
		"lemon mark of ours gone": {repeatOffender(""), &corev1.Node{}, true},

		"rebooted":        {node(same), node(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }), true},
		"another machine": {node(same), node(func(n *corev1.Node) { n.Spec.ProviderID = "p2" }), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := reconciler.Relevant(tt.before, tt.after); got != tt.want {
				t.Errorf("Relevant = %v, want %v", got, tt.want)
			}
		})
	}
}
