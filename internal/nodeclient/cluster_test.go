package nodeclient_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// TestItIsAnswered asks a real API server for everything.
func TestItIsAnswered(t *testing.T) {
	cluster, ctx := localcluster.ForTest(t, localcluster.Options{}), t.Context()
	client, err := nodeclient.Connect(nodeclient.Config{Kubeconfig: cluster.AdminKubeconfig(), QPS: 1000, Burst: 100}, "test")
	if err != nil {
		t.Fatal(err)
	}
	made, err := cluster.AddNode(ctx, localcluster.NodeSpec{Name: "asked"})
	if err != nil {
		t.Fatal(err)
	}
	node, err := client.Nodes.Get(ctx, "asked", metav1.GetOptions{})
	if err != nil || nodeclient.Identity(node).UID != string(made.UID) || nodeclient.Identity(node).BootID == "" {
		t.Errorf("node %+v, %v", nodeclient.Identity(node), err)
	}
	one := metav1.ListOptions{FieldSelector: "metadata.name=asked"}
	list, err := client.Nodes.List(ctx, one)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d nodes, %v", len(list.Items), err)
	}
	one.ResourceVersion = list.ResourceVersion
	changes, err := client.Nodes.Watch(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	patch := []byte(`{"status":{"conditions":[{"type":"Asked","status":"True"}]}}`)
	if _, err := client.Nodes.Patch(ctx, "asked", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	change := <-changes.ResultChan()
	asked := func(c corev1.NodeCondition) bool { return c.Type == "Asked" }
	if seen, ok := change.Object.(*corev1.Node); !ok || !slices.ContainsFunc(seen.Status.Conditions, asked) {
		t.Errorf("the watch shows %v: %T", change.Type, change.Object)
	}
	review, err := client.TokenReviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "none"}}, metav1.CreateOptions{})
	if err != nil || review.Status.Authenticated {
		t.Errorf("review %+v, %v", review.Status, err)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]nodeclient.Config{
		"kube.qps (--kube-api-qps) -1": {QPS: -1}, "kube.burst (--kube-api-burst) -1": {Burst: -1},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if err := (nodeclient.Config{QPS: 5}).Validate(); err != nil {
		t.Error(err)
	}
	for want, cfg := range map[string]nodeclient.Config{
		"service account, since no kubeconfig is given": {}, "reading kubeconfig /none": {Kubeconfig: "/none"},
	} {
		if _, err := nodeclient.Connect(cfg, "test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestItLinksNoClientset is what the package is for.
func TestItLinksNoClientset(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(p, "k8s.io/client-go/kubernetes") || strings.HasPrefix(p, "k8s.io/client-go/informers") {
			t.Errorf("it links %s", p)
		}
	}
}
