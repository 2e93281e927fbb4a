package command_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// world is a real store and a real API server with one node in repair.
type world struct {
	cluster *localcluster.Cluster
	dsn     string
	records store.Store
	// viewer may read what docs/reference/cli.md describes, and nothing else.
	viewer string
	node   *corev1.Node
	fault  record.Record
	object string
}

var install sync.Once

const line = "[1.0] NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus."

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{cluster: localcluster.ForTest(t, localcluster.Options{}), dsn: storetest.SQLiteDSN(t)}
	w.records = storetest.Open(t, w.dsn, storeopen.Options{})
	install.Do(func() {
		files, err := filepath.Glob("../../../distros/helm/nvsentinel/crds/janitor.*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("no definitions: %v", err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w.apply(t, string(text))
		}
		w.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: nvsentinel}\n")
		w.apply(t, documentedRole(t))
	})
	w.viewer = w.account(t, "viewer", "nvsentinel-viewer")
	w.node = w.addNode(t)
	w.fault = w.addFault(t)
	w.object = w.addObject(t)
	w.mark(t)
	return w
}

// documentedRole is the role that docs/reference/cli.md asks for.
func documentedRole(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	role, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/reference/cli.md documents no role")
	}
	return role
}

func (w *world) apply(t *testing.T, manifest string) {
	t.Helper()
	if err := w.cluster.Apply(t.Context(), strings.NewReader(manifest)); err != nil {
		t.Fatal(err)
	}
}

// account is the kubeconfig of a service account with a cluster role, or none.
// It waits until the role counts, which is a moment after it was bound.
func (w *world) account(t *testing.T, name, role string) string {
	t.Helper()
	path, err := w.cluster.ServiceAccountKubeconfig(t.Context(), "operators", name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if role != "" {
		w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: `+name+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: `+role+`}
subjects: [{kind: ServiceAccount, name: `+name+`, namespace: operators}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: `+name+`, namespace: nvsentinel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: `+role+`}
subjects: [{kind: ServiceAccount, name: `+name+`, namespace: operators}]
`)
		testkit.Until(t, 2*time.Minute, func() bool { return w.mayList(t, name) })
	}
	return path
}

// mayList asks the API server whether a service account may list Nodes.
func (w *world) mayList(t *testing.T, name string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:operators:" + name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"},
	}}
	answer, err := w.cluster.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}

func (w *world) addNode(t *testing.T) *corev1.Node {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	node, err := w.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A test may have deleted it.
		_ = w.cluster.Client().CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	return node
}

// addFault stores a fault of the node whose repair is under way.
func (w *world) addFault(t *testing.T) record.Record {
	t.Helper()
	at := time.Now().UTC().Add(-time.Minute).Truncate(time.Microsecond)
	r := storetest.Record(w.node.Name, func(r *record.Record) {
		r.CreatedAt, r.Event.GeneratedTimestamp, r.Event.Message = at, at, line
		r.Node = kube.NodeIdentity(w.node)
	})
	r.Status = record.Status{
		NodeQuarantined: record.Quarantined, QuarantineFinishTimestamp: &at, Session: r.ID, Faults: []record.Fault{{Key: "k"}},
		QuarantineVerdict:      &record.Verdict{Reason: record.Matched, RuleSets: []string{"fatal"}, Effects: record.Effects{Cordon: true}, At: at},
		UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionSucceeded}, DrainFinishTimestamp: &at,
	}
	return storetest.Seed(t, w.records, r)[0]
}

var rebootNodes = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}

// addObject makes the maintenance object and writes it into the record.
func (w *world) addObject(t *testing.T) string {
	t.Helper()
	objects := w.cluster.Dynamic().Resource(rebootNodes)
	x, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "janitor.dgxc.nvidia.com/v1alpha1", "kind": "RebootNode",
		"metadata": map[string]any{"generateName": "repair-"}, "spec": map[string]any{"nodeName": w.node.Name},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "SignalSent", "status": "True", "reason": "Sent", "message": "", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}}
	if x, err = objects.UpdateStatus(t.Context(), x, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := w.fault.Status
	status.Remediation = &record.Remediation{Cause: w.fault.ID, Attempts: []record.Attempt{{
		Ordinal: 1, Group: "restart", Action: record.ActionRestartVM, Kind: "RebootNode", Name: x.GetName(), UID: string(x.GetUID()),
		Session: w.fault.ID, SubmittedAt: x.GetCreationTimestamp().UTC(),
	}}}
	change := store.Change{ID: w.fault.ID, Revision: w.fault.Revision, Status: status}
	if _, err := w.records.Update(t.Context(), record.FaultRemediation, []store.Change{change}); err != nil {
		t.Fatal(err)
	}
	return x.GetName()
}

// mark marks the Node as fault-quarantine does.
func (w *world) mark(t *testing.T) {
	t.Helper()
	active, err := json.Marshal([]*protos.HealthEvent{record.ToProto(w.fault.Event)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = kube.PatchNode(t.Context(), w.cluster.Client(), w.node, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Labels[nodemark.StateLabel] = string(nodemark.Remediating)
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[nodemark.SessionAnnotation] = w.fault.ID
		n.Annotations[nodemark.QuarantineHealthEventIsCordoned] = nodemark.True
		n.Annotations[nodemark.QuarantineHealthEvent] = string(active)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot is all that must not change: the record, the Node, the object.
func (w *world) snapshot(t *testing.T) string {
	t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), w.node.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object, err := w.cluster.Dynamic().Resource(rebootNodes).Get(t.Context(), w.object, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]any{storetest.MustGet(t, w.records, w.fault.ID), node, object})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
