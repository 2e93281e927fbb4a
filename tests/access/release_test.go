package access

import (
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

const bystander = "system:serviceaccount:gpu-operator:driver"

// bystanderConfig is that of a service account of somebody else's that may change Nodes.
func (w *world) bystanderConfig(t *testing.T) *rest.Config {
	t.Helper()
	ctx, meta := t.Context(), metav1.ObjectMeta{Name: "driver", Namespace: "gpu-operator"}
	_, err := w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: meta.Namespace}}, metav1.CreateOptions{})
	made := []error{err}
	_, err = w.admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "list", "patch", "update", "watch"}},
	}}, metav1.CreateOptions{})
	made = append(made, err)
	_, err = w.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace}},
	}, metav1.CreateOptions{})
	for _, err := range append(made, err) {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	path, err := w.cluster.ServiceAccountKubeconfig(ctx, meta.Namespace, meta.Name, tokenLifetime)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// person acts as an administrator by name, and is warned.
func (w *world) person(t *testing.T, name string, warnings rest.WarningHandler) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(w.cluster.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters"}}
	config.WarningHandler = warnings
	return client(t, config)
}

// sick makes a Node in quarantine, by a cordon and a taint.
func (w *world) sick(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := w.plain(t, name)
	quarantined(t, w, node)
	return w.now(t, node.Name)
}

// noted waits until the API server records who removes a mark: a new policy takes effect a
// little later.
func (w *world) noted(t *testing.T) {
	t.Helper()
	node := w.sick(t, "probe")
	testkit.Until(t, 2*time.Minute, func() bool {
		for _, value := range []any{true, nil} {
			if err := (change{patch: spec("unschedulable", value)}).by(t.Context(), w.admin, node.Name); err != nil {
				t.Fatal(err)
			}
		}
		forged := change{patch: annotations(nodemark.ReleasePrefix+"session", "mallory: over")}.by(t.Context(), w.admin, node.Name)
		return w.now(t, node.Name).Annotations[nodemark.LiftedByAnnotation] != "" && refused(forged)
	})
}

// TestAPIServerRecordsWriterOfMark: the API server records who removes a mark, whichever way it
// is done. Nothing else on the Node shows it: managedFields names no manager for a removed
// field.
func TestAPIServerRecordsWriterOfMark(t *testing.T) {
	w := newWorld(t)
	w.noted(t)
	for name, tt := range map[string]struct {
		agent, manager, body string
		kind                 types.PatchType
	}{
		"kubectl-uncordon":   {"kubectl/v1.37.1 (linux/amd64) kubernetes/0", "", `{"spec":{"unschedulable":null}}`, types.StrategicMergePatchType},
		"driver-manager":     {"driver-manager/v0.8", "driver-manager", `{"spec":{"unschedulable":false}}`, types.StrategicMergePatchType},
		"merge":              {"kured/1.0", "", `{"spec":{"unschedulable":false}}`, types.MergePatchType},
		"json":               {"upgrader/1", "", `[{"op":"remove","path":"/spec/unschedulable"}]`, types.JSONPatchType},
		"untaint":            {"janitorial/1", "", `{"spec":{"taints":null}}`, types.MergePatchType},
		"update":             {"capi/1", "", "", ""},
		"claims-to-be-alice": {"kubectl/v1", "", `{"spec":{"unschedulable":null},"metadata":{"annotations":{"` + nodemark.LiftedByAnnotation + `":"alice"}}}`, types.MergePatchType},
	} {
		node := w.sick(t, name)
		config := w.bystanderConfig(t)
		config.UserAgent = tt.agent
		nodes := client(t, config).CoreV1().Nodes()
		var after *corev1.Node
		var err error
		if tt.kind == "" {
			node.Spec.Unschedulable = false
			after, err = nodes.Update(t.Context(), node, metav1.UpdateOptions{})
		} else {
			after, err = nodes.Patch(t.Context(), node.Name, tt.kind, []byte(tt.body), metav1.PatchOptions{FieldManager: tt.manager})
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if by := after.Annotations[nodemark.LiftedByAnnotation]; by != bystander {
			t.Errorf("%s: lifted by %q", name, by)
		}
		if m := nodemark.Read(after); m.Lifted == nodemark.NotReleased || m.Released != nodemark.NotReleased {
			t.Errorf("%s: lifted %q, released %q", name, m.Lifted, m.Released)
		}
		for _, m := range after.ManagedFields {
			if name != "untaint" && strings.Contains(m.FieldsV1.GetRawString(), `"f:unschedulable"`) {
				t.Errorf("%s: %s manages a cordon that is gone", name, m.Manager)
			}
		}
	}
}

// TestAPersonsUncordonIsRecognised, and who uncordons without releasing is warned.
func TestAPersonsUncordonIsRecognised(t *testing.T) {
	w := newWorld(t)
	w.noted(t)
	for name, tt := range map[string]struct {
		user    string
		repair  bool
		want    nodemark.ReleaseCause
		warning bool
	}{
		"person":       {"alice", false, nodemark.ByUncordon, false},
		"in-repair":    {"alice", true, nodemark.NotReleased, true},
		"as-bystander": {bystander, false, nodemark.NotReleased, true},
	} {
		node := w.sick(t, name)
		if tt.repair {
			if err := (change{patch: annotations(nodemark.RepairAnnotation, "uid")}).by(t.Context(), w.admin, node.Name); err != nil {
				t.Fatal(err)
			}
		}
		var warned warnings
		body := []byte(`{"spec":{"unschedulable":null}}`)
		if _, err := w.person(t, tt.user, &warned).CoreV1().Nodes().Patch(t.Context(), node.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := nodemark.Read(w.now(t, node.Name)).Released; got != tt.want || warned.n() > 0 != tt.warning {
			t.Errorf("%s: released %q, %d warnings; want %q, warned %t", name, got, warned.n(), tt.want, tt.warning)
		}
	}
}

// TestReleaseCannotBeForged: not in a person's name, no service account, no kubelet, and
// not by what fault-quarantine writes.
func TestReleaseCannotBeForged(t *testing.T) {
	w := newWorld(t)
	w.noted(t)
	node := w.sick(t, "forged")
	request := nodemark.ReleasePrefix + "session"
	alice, other, kubelet := w.person(t, "alice", rest.NoWarnings{}), client(t, w.bystanderConfig(t)), w.kubelet(t, node.Name)
	was := w.now(t, node.Name)
	for what, tt := range map[string]struct {
		as    kubernetes.Interface
		patch any
	}{
		"a person in another's name":              {alice, annotations(request, "bob: over")},
		"a service account in a person's name":    {other, annotations(request, "alice: over")},
		"a service account in its own name":       {other, annotations(request, bystander+": over")},
		"a kubelet in its own name":               {kubelet, annotations(request, "system:node:"+node.Name+": over")},
		"who lifted a mark that is there":         {other, annotations(nodemark.LiftedByAnnotation, bystander)},
		"a person who lifted a mark, by another":  {other, annotations(nodemark.LiftedByAnnotation, "alice")},
		"a person who lifts nothing":              {alice, annotations(nodemark.LiftedByAnnotation, "alice")},
		"anyone releases, says a service account": {other, annotations(nodemark.AnyoneReleasesAnnotation, nodemark.True)},
		"anyone releases, says a kubelet":         {kubelet, annotations(nodemark.AnyoneReleasesAnnotation, nodemark.True)},
		"restored, says a service account":        {other, annotations(nodemark.RestoredAnnotation, "{}")},
		"a release is noted, by a service account": {other, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			nodemark.SessionAnnotation: nil, nodemark.QuarantinedNodeUncordonedManually: nodemark.True,
		}}}},
		"faults are ended, says a service account": {other, annotations(nodemark.ReleasedAnnotation, "session")},
		"the janitor asks for a release":           {w.account(t, "janitor"), annotations(request, "system:serviceaccount:nvsentinel:janitor: over")},
	} {
		for _, byStatus := range []bool{false, true} {
			if err := (change{status: byStatus, patch: tt.patch}).by(t.Context(), tt.as, node.Name); !refused(err) {
				t.Errorf("%s, by status %t: %v, want it refused", what, byStatus, err)
			}
		}
	}
	w.unchanged(t, was)
}

// TestFaultQuarantineRestoresAndReleases under its policies: a mark that a bystander
// lifted, and the session that a person asks to end.
func TestFaultQuarantineRestoresAndReleases(t *testing.T) {
	w := newWorld(t)
	w.noted(t)
	node := w.sick(t, "restored")
	painter := marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}
	session := marks.Desired{
		Session: "session", RuleSets: []string{"gpu"}, Faults: []record.Event{{ID: "session", NodeName: node.Name}},
		Effects: record.Effects{Cordon: true, Taints: []record.Taint{{Key: "nvidia.com/gpu-error", Value: "fatal", Effect: "NoSchedule"}}},
	}
	paint := func(d marks.Desired) *corev1.Node {
		t.Helper()
		after, err := kube.PatchNode(t.Context(), w.account(t, "fault-quarantine"), w.now(t, node.Name), func(n *corev1.Node) {
			painter.Apply(n, d, time.Now())
			marks.FollowCordon(n)
		})
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	if err := (change{patch: map[string]any{"spec": map[string]any{"unschedulable": nil, "taints": nil}}}).by(t.Context(), client(t, w.bystanderConfig(t)), node.Name); err != nil {
		t.Fatal(err)
	}
	after := paint(session)
	if m := nodemark.Read(after); m.Lifted != nodemark.NotReleased || m.Restored.Count != 1 || m.Restored.By != bystander || m.LiftedBy != "" {
		t.Errorf("not restored: %s", show(after))
	}
	request := change{patch: annotations(nodemark.ReleasePrefix+"session", "alice: looked at it")}
	if err := request.by(t.Context(), w.person(t, "alice", rest.NoWarnings{}), node.Name); err != nil {
		t.Fatal(err)
	}
	if got := nodemark.Read(w.now(t, node.Name)).Released; got != nodemark.ByRequest {
		t.Errorf("released by %q", got)
	}
	after = paint(marks.Desired{})
	if nodemark.HasMarks(after) || after.Spec.Unschedulable || after.Annotations[nodemark.ReleasePrefix+"session"] != "" {
		t.Errorf("not released: %s", show(after))
	}
}

// warnings counts what an API server warns of.
type warnings struct {
	mu    sync.Mutex
	count int
}

func (w *warnings) HandleWarningHeader(int, string, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
}

func (w *warnings) n() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}
