package faultquarantine_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// driver is NVIDIA's driver pod, which may change Nodes by its own service account.
func (s *site) driver() kubernetes.Interface {
	s.t.Helper()
	c, ctx := s.cluster.Client(), s.t.Context()
	meta := metav1.ObjectMeta{Name: "nvidia-driver", Namespace: "gpu-operator"}
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: meta.Namespace}}, metav1.CreateOptions{})
	made := []error{err}
	_, err = c.CoreV1().ServiceAccounts(meta.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	made = append(made, err)
	_, err = c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "patch", "update", "watch"}},
	}}, metav1.CreateOptions{})
	made = append(made, err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace}},
	}, metav1.CreateOptions{})
	for _, err := range append(made, err) {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			s.t.Fatal(err)
		}
	}
	path, err := s.cluster.ServiceAccountKubeconfig(ctx, meta.Namespace, meta.Name, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// TestADriverPodReleasesNothing: NVIDIA's driver pod uncordons its node at each boot. The
// node is cordoned again, its session goes on, and its taint stays; a person's uncordon
// releases it.
func TestADriverPodReleasesNothing(t *testing.T) {
	s := here(t)
	driver := s.driver()
	uncordon := []byte(`{"spec":{"unschedulable":false}}`)
	for name, rules := range map[string]string{"cordoned": "", "tainted": tainting} {
		t.Run(name, func(t *testing.T) {
			s.configure("[circuitBreaker]\npercentage = 100\n" + rules)
			p := s.start()
			defer p.stop()
			node := s.nodes("driver-"+name, 1, nil)[0]
			f := s.fault(node, func(r *record.Record) {
				r.Event.ErrorCode, r.Event.RecommendedAction = []string{"74"}, record.ActionContactSupport
			})
			s.await(f.ID, record.Matched, record.Quarantined)
			was := s.awaitNode(node, quarantined)
			if _, err := driver.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, uncordon, metav1.PatchOptions{FieldManager: "driver-manager"}); err != nil {
				t.Fatal(err)
			}
			is := s.awaitNode(node, func(n *corev1.Node) bool { return n.Spec.Unschedulable && nodemark.Read(n).Restored.Count == 1 })
			if nodemark.Session(is) != f.ID || len(is.Spec.Taints) != len(was.Spec.Taints) || nodemark.Read(is).Restored.By != "system:serviceaccount:gpu-operator:nvidia-driver" {
				t.Errorf("taints %v, then %v; %v", was.Spec.Taints, is.Spec.Taints, is.Annotations)
			}
			s.waitForEvent(node, corev1.EventTypeWarning, "MarksRestored", "system:serviceaccount:gpu-operator:nvidia-driver uncordoned the node, which is not a release")
			if r := s.get(f.ID); r.Status.NodeQuarantined != record.Quarantined || r.Status.Faults[0].ClearedTimestamp != nil {
				t.Errorf("the record: %s", pretty(r.Status))
			}
			p.awaitMetric(`nvsentinel_fault_quarantine_node_marks_restored_total{action="uncordon",user_kind="service account"} 1`)
			s.uncordon(node)
			s.await(f.ID, record.Matched, record.QuarantineCanceled)
			s.awaitNode(node, clean)
		})
	}
}

// TestADriverPodReleasesWhereAnyoneDoes, as it did before there was the setting.
func TestADriverPodReleasesWhereAnyoneDoes(t *testing.T) {
	s := here(t)
	p := s.start("--release-on-any-uncordon")
	defer p.stop()
	node := s.nodes("anyone", 1, nil)[0]
	f := s.fault(node)
	s.awaitNode(node, quarantined)
	if _, err := s.driver().CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await(f.ID, record.Matched, record.QuarantineCanceled)
	if n := s.awaitNode(node, clean); n.Annotations[nodemark.AnyoneReleasesAnnotation] != "" {
		t.Errorf("left over: %v", n.Annotations)
	}
}
