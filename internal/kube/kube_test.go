package kube_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// connect returns a client of a real API server and counts its writes.
func connect(t *testing.T) (*kube.Client, *atomic.Int32) {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	rc := cluster.RESTConfig()
	writes := &atomic.Int32{}
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, writes} })
	client, err := kube.ForConfig(rc, kube.Config{}, "kube-test")
	if err != nil {
		t.Fatal(err)
	}
	return client, writes
}

type counter struct {
	next   http.RoundTripper
	writes *atomic.Int32
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}

// makeNode creates a Node that lives as long as the test.
func makeNode(t *testing.T, client *kube.Client, name string) *corev1.Node {
	t.Helper()
	nodes := client.Clientset.CoreV1().Nodes()
	node, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"keep": "me"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "foreign", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := nodes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return node
}

func cordon(n *corev1.Node) {
	n.Spec.Unschedulable = true
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "ours", Value: "x", Effect: corev1.TaintEffectNoExecute})
	n.Labels["state"] = "quarantined"
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations["session"] = "s1"
}

func TestPatchNode(t *testing.T) {
	client, writes := connect(t)
	before := makeNode(t, client, "patched")

	writes.Store(0)
	after, err := kube.PatchNode(t.Context(), client.Clientset, before, cordon)
	if err != nil {
		t.Fatal(err)
	}
	if writes.Load() != 1 {
		t.Errorf("%d writes, want one", writes.Load())
	}
	if len(before.Spec.Taints) != 1 || before.Spec.Unschedulable {
		t.Error("the Node that was given has changed")
	}
	read, err := kube.ReadNode(t.Context(), client.Clientset, "patched")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, read); diff != "" {
		t.Errorf("stored Node (-returned +stored):\n%s", diff)
	}
	var taints []string
	for _, x := range read.Spec.Taints {
		taints = append(taints, x.Key)
	}
	marks := []any{read.Spec.Unschedulable, read.Labels["keep"], read.Labels["state"], read.Annotations["session"]}
	if diff := cmp.Diff([]any{true, "me", "quarantined", "s1"}, marks); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	for _, want := range []string{"foreign", "ours"} {
		if !strings.Contains(strings.Join(taints, ","), want) {
			t.Errorf("taints %v lack %s", taints, want)
		}
	}

	writes.Store(0)
	same, err := kube.PatchNode(t.Context(), client.Clientset, read, func(n *corev1.Node) { n.Labels["state"] = "quarantined" })
	if err != nil || same.ResourceVersion != read.ResourceVersion || writes.Load() != 0 {
		t.Errorf("without a difference: %d writes, error %v", writes.Load(), err)
	}

	lifted, err := kube.PatchNode(t.Context(), client.Clientset, read, func(n *corev1.Node) {
		n.Spec.Unschedulable, n.Spec.Taints = false, nil
		delete(n.Labels, "state")
		delete(n.Annotations, "session")
	})
	if err != nil {
		t.Fatal(err)
	}
	_, state := lifted.Labels["state"]
	_, session := lifted.Annotations["session"]
	if lifted.Spec.Unschedulable || len(lifted.Spec.Taints) != 0 || state || session || lifted.Labels["keep"] != "me" {
		t.Errorf("after the release: %+v %+v", lifted.Spec, lifted.ObjectMeta)
	}
}

// TestKubernetesTypesComeAsProtobuf: JSON costs the API server and every watcher
// of Nodes several times as much.
func TestKubernetesTypesComeAsProtobuf(t *testing.T) {
	client, _ := connect(t)
	var got string
	err := client.Clientset.CoreV1().RESTClient().Get().Resource("nodes").Do(t.Context()).ContentType(&got).Error()
	if err != nil || got != runtime.ContentTypeProtobuf {
		t.Errorf("nodes come as %q, %v", got, err)
	}
}

func TestPatchNodeLosesARace(t *testing.T) {
	client, _ := connect(t)
	before := makeNode(t, client, "raced")
	if _, err := kube.PatchNode(t.Context(), client.Clientset, before, func(n *corev1.Node) { n.Spec.Unschedulable = true }); err != nil {
		t.Fatal(err)
	}
	_, err := kube.PatchNode(t.Context(), client.Clientset, before, cordon)
	if !errors.Is(err, kube.ErrConflict) || !strings.Contains(err.Error(), "raced") {
		t.Errorf("got %v, want an ErrConflict that names the node", err)
	}
	read, err := kube.ReadNode(t.Context(), client.Clientset, "raced")
	if err != nil || len(read.Spec.Taints) != 1 {
		t.Errorf("the loser has written: %+v, %v", read.Spec, err)
	}
}

// TestPatchNodeNeverTouchesTheNextNode deletes a Node and makes another of its
// name: marks computed for the first never land on the second.
func TestPatchNodeNeverTouchesTheNextNode(t *testing.T) {
	client, _ := connect(t)
	before := makeNode(t, client, "reborn")
	if err := client.Clientset.CoreV1().Nodes().Delete(t.Context(), "reborn", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := kube.PatchNode(t.Context(), client.Clientset, before, cordon)
	if !errors.Is(err, kube.ErrNodeDeleted) {
		t.Errorf("patching a deleted node: %v, want ErrNodeDeleted", err)
	}
	makeNode(t, client, "reborn")
	_, err = kube.PatchNode(t.Context(), client.Clientset, before, cordon)
	if !errors.Is(err, kube.ErrConflict) {
		t.Errorf("patching its successor: %v, want ErrConflict", err)
	}
	read, err := kube.ReadNode(t.Context(), client.Clientset, "reborn")
	if err != nil || read.Spec.Unschedulable {
		t.Errorf("the successor was marked: %+v, %v", read, err)
	}
}

func TestOnlyNotFoundIsDeleted(t *testing.T) {
	client, _ := connect(t)
	if _, err := kube.ReadNode(t.Context(), client.Clientset, "nobody"); !errors.Is(err, kube.ErrNodeDeleted) {
		t.Errorf("a node that does not exist: %v, want ErrNodeDeleted", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kube.ReadNode(canceled, client.Clientset, "nobody"); err == nil || errors.Is(err, kube.ErrNodeDeleted) {
		t.Errorf("a read that failed: %v, want an error that is not ErrNodeDeleted", err)
	}
}

func TestNodesCacheAndSource(t *testing.T) {
	client, _ := connect(t)
	nodes := kube.WatchNodes(client.Clientset, kube.Strip)
	if ok, detail := nodes.Synced(); ok || detail == "" {
		t.Errorf("before it runs the cache says %v %q", ok, detail)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var enqueued sync.Map
	source := nodes.Source(func(before, after *corev1.Node) bool {
		return before == nil || after == nil || before.Spec.Unschedulable != after.Spec.Unschedulable
	})
	running.Go(func() {
		if err := nodes.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		err := source(ctx, func(key string) { n, _ := enqueued.LoadOrStore(key, new(atomic.Int32)); n.(*atomic.Int32).Add(1) })
		if err != nil {
			t.Error(err)
		}
	})
	if err := nodes.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	count := func() int32 {
		if n, ok := enqueued.Load("watched"); ok {
			return n.(*atomic.Int32).Load()
		}
		return 0
	}

	node := makeNode(t, client, "watched")
	testkit.Until(t, 2*time.Minute, func() bool { return count() == 1 })
	node, err := kube.PatchNode(t.Context(), client.Clientset, node, func(n *corev1.Node) { n.Labels["irrelevant"] = "yes" })
	if err != nil {
		t.Fatal(err)
	}
	if _, err = kube.PatchNode(t.Context(), client.Clientset, node, cordon); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, 2*time.Minute, func() bool { return count() == 2 })
	cached, err := nodes.Lister.Get("watched")
	if err != nil || !cached.Spec.Unschedulable || cached.ManagedFields != nil {
		t.Errorf("cached Node %+v, %v", cached, err)
	}
	if err := client.Clientset.CoreV1().Nodes().Delete(t.Context(), "watched", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, 2*time.Minute, func() bool { return count() == 3 })
	cancel()
	running.Wait()
}

func TestConnect(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	client, err := kube.Connect(kube.Config{Kubeconfig: cluster.AdminKubeconfig()}, "svc/v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Clientset.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Error(err)
	}
	if client.Config.QPS != -1 || client.Config.UserAgent != "svc/v1" {
		t.Errorf("QPS %v, user agent %q", client.Config.QPS, client.Config.UserAgent)
	}
	throttled, err := kube.Connect(kube.Config{Kubeconfig: cluster.AdminKubeconfig(), QPS: 7}, "svc")
	if err != nil || throttled.Config.QPS != 7 || throttled.Config.Burst != 1 {
		t.Errorf("QPS %v, burst %d, error %v", throttled.Config.QPS, throttled.Config.Burst, err)
	}
	if _, err := kube.Connect(kube.Config{Kubeconfig: "/does/not/exist"}, "svc"); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if _, err := kube.Connect(kube.Config{}, "svc"); err == nil || !strings.Contains(err.Error(), "service account") {
		t.Errorf("got %v, want an error that says what was tried", err)
	}
}

func TestNodeIdentityAndReady(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.NodeSpec{ProviderID: "p"},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{SystemUUID: "s", BootID: "b"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	want := record.NodeIdentity{UID: "u", ProviderID: "p", SystemUUID: "s", BootID: "b"}
	if diff := cmp.Diff(want, kube.NodeIdentity(node)); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if !kube.NodeReady(node) || kube.NodeReady(&corev1.Node{}) {
		t.Error("readiness is not the Ready condition")
	}
}

// An informer that does not stop holds nothing up.
func TestAwaitStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		kube.AwaitStop(func() { <-never })
		stopped := false
		kube.AwaitStop(func() { stopped = true })
		if !stopped {
			t.Error("did not wait for what stops at once")
		}
	})
}
