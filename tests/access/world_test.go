// Package access tries what the suite's accounts may do on a real API server: every
// forgery is refused, and every write that a service makes is let through.
package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

const (
	namespace     = "nvsentinel"
	manifests     = "../../distros/helm/nvsentinel/manifests/"
	tokenLifetime = time.Hour
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// world is a control plane with the suite's rights and policies active.
type world struct {
	cluster *localcluster.Cluster
	admin   kubernetes.Interface

	mu    sync.Mutex
	users map[string]kubernetes.Interface
}

var only = &world{users: map[string]kubernetes.Interface{}}

// newWorld applies what the chart ships, once, and waits until the policies are active.
func newWorld(t *testing.T) *world {
	t.Helper()
	only.mu.Lock()
	defer only.mu.Unlock()
	if only.cluster != nil {
		return only
	}
	cluster := localcluster.ForTest(t, localcluster.Options{AuditNamespace: namespace})
	only.admin = cluster.Client()
	install(t, cluster, append(chainFiles, "nodes.yaml", "release.yaml", "lifted-by.yaml", "events.yaml", "pods.yaml", "node-health-check.yaml", "node-health-check-bridge.yaml",
		"crds/nvsentinel.dgxc.nvidia.com_healtheventremediations.yaml")...)
	only.cluster = cluster
	return only
}

// chainFiles are what repair-chain needs, below manifests.
var chainFiles = []string{
	"rbac.yaml", "names.yaml", "repair-chain.yaml", "repair-chain-leases.yaml", "../crds/janitor.dgxc.nvidia.com_rebootnodes.yaml", "../crds/nvsentinel.dgxc.nvidia.com_repairtemplates.yaml",
	"../crds/nvsentinel.dgxc.nvidia.com_repairchains.yaml", "../crds/nvsentinel.dgxc.nvidia.com_repairruns.yaml",
}

// install applies files of the chart.
func install(t *testing.T, cluster *localcluster.Cluster, files ...string) {
	t.Helper()
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(manifests, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// client acts by a configuration.
func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// account acts as a service account of the suite by a token that no pod is bound to.
func (w *world) account(t *testing.T, name string) kubernetes.Interface {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.users[name]; ok {
		return c
	}
	path, err := w.cluster.ServiceAccountKubeconfig(t.Context(), namespace, name, tokenLifetime)
	if err != nil {
		t.Fatal(err)
	}
	w.users[name] = fromFile(t, path)
	return w.users[name]
}

// onNode acts as a service account by the token of a pod on a node.
func (w *world) onNode(t *testing.T, name, node string) kubernetes.Interface {
	t.Helper()
	pod, err := w.cluster.AddPod(t.Context(), localcluster.PodSpec{Namespace: namespace, Name: name + "-" + node, Node: node, ServiceAccount: name})
	if err != nil {
		t.Fatal(err)
	}
	path, err := w.cluster.PodKubeconfig(t.Context(), pod, tokenLifetime)
	if err != nil {
		t.Fatal(err)
	}
	return fromFile(t, path)
}

func fromFile(t *testing.T, path string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return client(t, config)
}

// plain makes a Node without marks.
func (w *world) plain(t *testing.T, name string) *corev1.Node {
	t.Helper()
	return w.add(t, localcluster.NodeSpec{Name: name})
}

// node makes a Node of the control plane that looks like one in quarantine.
func (w *world) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	return w.add(t, localcluster.NodeSpec{
		Name: name, Labels: map[string]string{"node-role.kubernetes.io/control-plane": "", nodemark.StateLabel: string(nodemark.Quarantined)},
		Annotations: map[string]string{nodemark.SessionAnnotation: "session", nodemark.QuarantineHealthEventIsCordoned: nodemark.True},
		Taints:      []corev1.Taint{{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoSchedule}},
	})
}

func (w *world) add(t *testing.T, spec localcluster.NodeSpec) *corev1.Node {
	t.Helper()
	spec.Name = strings.ToLower(t.Name()) + "-" + spec.Name
	node, err := w.cluster.AddNode(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// condition is one as a check's owner writes it.
func condition(kind, reason string) map[string]any {
	return map[string]any{"type": kind, "status": "False", "reason": reason, "message": "m", "lastTransitionTime": "2020-01-01T00:00:00Z"}
}

// change is a patch of a Node, and of which of its resources.
type change struct {
	status bool
	kind   types.PatchType // merge patch if empty
	patch  any
}

func (c change) by(ctx context.Context, client kubernetes.Interface, node string) error {
	body, err := json.Marshal(c.patch)
	if err != nil {
		return err
	}
	kind, sub := c.kind, []string(nil)
	if kind == "" {
		kind = types.MergePatchType
	}
	if c.status {
		sub = []string{"status"}
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node, kind, body, metav1.PatchOptions{}, sub...)
	return err
}

func metadata(key string, value any) any {
	return map[string]any{"metadata": map[string]any{key: value}}
}

func labels(key string, value any) any { return metadata("labels", map[string]any{key: value}) }

func annotations(key string, value any) any {
	return metadata("annotations", map[string]any{key: value})
}

func spec(key string, value any) any { return map[string]any{"spec": map[string]any{key: value}} }

func status(key string, value any) any { return map[string]any{"status": map[string]any{key: value}} }

// refused reports whether a policy or a missing right refused a write.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// inForce waits until the policy of an account's Nodes refuses what it must: a new policy takes
// effect a little later.
func inForce(t *testing.T, caller kubernetes.Interface, node string, sub ...string) {
	t.Helper()
	forgery := []byte(`{"metadata":{"labels":{"example.com/probe":"x"}}}`)
	testkit.Until(t, 2*time.Minute, func() bool {
		_, err := caller.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, forgery, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, sub...)
		return refused(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
	})
}

func (w *world) now(t *testing.T, node string) *corev1.Node {
	t.Helper()
	now, err := w.admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// unchanged fails if a Node is not as it was.
func (w *world) unchanged(t *testing.T, was *corev1.Node) {
	t.Helper()
	now := w.now(t, was.Name)
	if now.ResourceVersion != was.ResourceVersion {
		t.Errorf("node %s was changed:\n%s", was.Name, show(now))
	}
}

func show(node *corev1.Node) string {
	node.ManagedFields = nil
	text, err := json.MarshalIndent(node, "", " ")
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}
