package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// TestAReturnedNodeHasAKubelet: a pod that is evicted from a Node that came back
// is ended, and so is one whose end came before the simulated kubelet knew the Node.
func TestAReturnedNodeHasAKubelet(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{Controllers: true, Nodes: 1, NodePrefix: "returned"})
	ctx := t.Context()
	f := &Fleet{Cluster: cluster, Dir: t.TempDir()}
	insist := func(do func() error) {
		t.Helper()
		testkit.Until(t, time.Minute, func() bool { return do() == nil })
	}
	for i := range 4 {
		name := fmt.Sprintf("back-%d", i)
		was, err := cluster.AddNode(ctx, localcluster.NodeSpec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.WaitForNodes(ctx, name); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(f.machine(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.machine(name), "boot_id"), []byte(was.Status.NodeInfo.BootID), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.AddPod(ctx, localcluster.PodSpec{Namespace: UserNamespace, Name: name, Node: name, GPUs: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitForPods(ctx, UserNamespace, name, 1); err != nil {
			t.Fatal(err)
		}
		pods := cluster.Client().CoreV1().Pods(UserNamespace)
		evict := func() error {
			err := pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		insist(func() error { return f.DeleteNode(ctx, was) })
		if i%2 == 1 {
			insist(evict)
		}
		insist(func() error { return f.Returned(ctx, was) })
		if i%2 == 0 {
			insist(evict)
		}
		insist(func() error {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("pod %s is there: %w", pod.Name, err)
		})
	}
}
