package kube_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// without takes the test of one path out of every JSON patch on its way.
type without struct {
	next  http.RoundTripper
	path  string
	found bool
}

func (w *without) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.path == "" || r.Method != http.MethodPatch || r.Header.Get("Content-Type") != string(types.JSONPatchType) {
		return w.next.RoundTrip(r)
	}
	var operations, left []map[string]any
	if err := json.NewDecoder(r.Body).Decode(&operations); err != nil {
		return nil, err
	}
	for _, o := range operations {
		if o["op"] == "test" && o["path"] == w.path {
			w.found = true
			continue
		}
		left = append(left, o)
	}
	body, err := json.Marshal(left)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.GetBody = nil
	return w.next.RoundTrip(r)
}

// facts are the pointers of what a patch holds on, with what another hand does to each.
func facts() map[string]func(*corev1.Node) {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	out := map[string]func(*corev1.Node){
		"/spec/unschedulable": func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"/spec/taints": func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "late", Effect: corev1.TaintEffectNoSchedule})
		},
		"/spec/providerID":            func(n *corev1.Node) { n.Spec.ProviderID = "other" },
		"/status/nodeInfo/bootID":     func(n *corev1.Node) { n.Status.NodeInfo.BootID = "other" },
		"/status/nodeInfo/systemUUID": func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "other" },
		"/metadata/labels/state":      func(n *corev1.Node) { n.Labels["state"] = "of-the-other" },
	}
	for _, key := range []string{
		nodemark.SessionAnnotation, nodemark.UnknownAnnotation, nodemark.RepairAnnotation, nodemark.QuarantineHealthEvent,
		nodemark.QuarantineHealthEventIsCordoned, nodemark.QuarantineHealthEventCordonPreExisting,
		nodemark.QuarantineHealthEventAppliedTaints, nodemark.QuarantineHealthEventAppliedLabels,
		nodemark.QuarantinedNodeUncordonedManually, nodemark.QuarantinedNodeUntaintedManually, nodemark.ReleasedAnnotation, nodemark.RepeatOffenderAnnotation,
		nodemark.LiftedByAnnotation, nodemark.RestoredAnnotation, nodemark.AnyoneReleasesAnnotation,
		nodemark.FormerRepeatOffenderAnnotation, nodemark.FormerReleaseOnAnyUncordonAnnotation,
	} {
		out["/metadata/annotations/"+escape.Replace(key)] = func(n *corev1.Node) { nodemark.Annotate(n, key, "other <&> é \u2028") }
	}
	for _, key := range []string{nodemark.ManagedLabel, nodemark.FormerManagedLabel, nodemark.RepeatOffenderLabel, nodemark.FormerRepeatOffenderLabel} {
		out["/metadata/labels/"+escape.Replace(key)] = func(n *corev1.Node) { nodemark.Label(n, key, "other") }
	}
	return out
}

// set marks a Node without touching anything else that facts does.
func set(n *corev1.Node) { nodemark.Label(n, "state", "quarantined") }

// TestAPatchHoldsOnlyOnItsFacts: for each fact, a Node that another hand changed there
// after it was read is not patched; without the one test of it, it would be.
func TestAPatchHoldsOnlyOnItsFacts(t *testing.T) {
	client, _ := connect(t)
	strip := &without{}
	config := rest.CopyConfig(client.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { strip.next = next; return strip })
	stripped, err := kube.ForConfig(config, kube.Config{}, "kube-test")
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range slices.Sorted(maps.Keys(facts())) {
		before := annotated(t, client, fmt.Sprintf("fact-%d", i))
		changeIt(t, client, before, facts()[path])
		if _, err := kube.PatchNode(t.Context(), client.Clientset, before, set); !errors.Is(err, kube.ErrConflict) {
			t.Errorf("%s: got %v, want ErrConflict", path, err)
		}
		strip.path, strip.found = path, false
		after, err := kube.PatchNode(t.Context(), stripped.Clientset, before, set)
		if err != nil || !strip.found || after.Labels["state"] != "quarantined" {
			t.Errorf("%s: without the test (found %t) the patch is refused all the same: %v", path, strip.found, err)
		}
	}
}

// TestPatchSurvivesOtherWrites: heartbeats, conditions, and labels, annotations
// and states that no decision is made from lose it no race.
func TestPatchSurvivesOtherWrites(t *testing.T) {
	client, _ := connect(t)
	before := annotated(t, client, "busy")
	changeIt(t, client, before, func(n *corev1.Node) {
		n.Labels["foreign"], n.Annotations["foreign"] = "x", "y"
		nodemark.SetState(n, nodemark.Draining)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "GpuXidError", Status: corev1.ConditionTrue})
	})
	after, err := kube.PatchNode(t.Context(), client.Clientset, before, cordon)
	if err != nil {
		t.Fatal(err)
	}
	if !after.Spec.Unschedulable || len(after.Spec.Taints) != 2 || after.Labels["foreign"] != "x" || after.Annotations["foreign"] != "y" ||
		len(after.Status.Conditions) == 0 {
		t.Errorf("%+v %+v", after.ObjectMeta, after.Spec)
	}
}

// TestPatchOfStrippedNodeAddsToNode: the labels and annotations that a cache has
// dropped stay on the Node.
func TestPatchOfStrippedNodeAddsToNode(t *testing.T) {
	client, _ := connect(t)
	node := annotated(t, client, "stripped")
	node = changeIt(t, client, node, func(n *corev1.Node) {
		n.Labels = map[string]string{"zone": "a", "example.com/rack": "r1"}
		n.Annotations = map[string]string{"example.com/owner": "x", "example.com/team": "y"}
	})
	cached, err := kube.StripToMarks(node.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	after, err := kube.PatchNode(t.Context(), client.Clientset, cached.(*corev1.Node), func(n *corev1.Node) {
		set(n)
		nodemark.SetClaim(n, "u1")
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"zone": "a", "example.com/rack": "r1", "state": "quarantined"} {
		if got := after.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	for key, want := range map[string]string{"example.com/owner": "x", "example.com/team": "y", nodemark.RepairAnnotation: "u1"} {
		if got := after.Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
}

// TestAnInvalidPatchIsNoLostRace: it would be sent for ever.
func TestAnInvalidPatchIsNoLostRace(t *testing.T) {
	client, _ := connect(t)
	before := makeNode(t, client, "invalid")
	_, err := kube.PatchNode(t.Context(), client.Clientset, before, func(n *corev1.Node) { n.Labels["state"] = "not a label's value" })
	if err == nil || errors.Is(err, kube.ErrConflict) || !strings.Contains(err.Error(), "not a label's value") {
		t.Errorf("got %v, want what is invalid", err)
	}
}

// annotated makes a Node with an annotation.
func annotated(t *testing.T, client *kube.Client, name string) *corev1.Node {
	t.Helper()
	return changeIt(t, client, makeNode(t, client, name), func(n *corev1.Node) { nodemark.Annotate(n, "note", "a <b> & c \u2028") })
}

// changeIt is another hand, which asks for no version.
func changeIt(t *testing.T, client *kube.Client, node *corev1.Node, change func(*corev1.Node)) *corev1.Node {
	t.Helper()
	nodes, node := client.Clientset.CoreV1().Nodes(), node.DeepCopy()
	change(node)
	status := node.Status
	node, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status = status
	if node, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return node
}
