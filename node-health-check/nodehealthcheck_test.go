package nodehealthcheck

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

const (
	chart       = "../distros/helm/nvsentinel/"
	waitTimeout = 3 * time.Minute
)

var (
	checks  = v1alpha1.GroupVersion.WithResource("nodehealthchecks")
	reboots = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}
)

func apply(t *testing.T, cluster *localcluster.Cluster, files ...string) {
	t.Helper()
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		_ = text.Close()
	}
}

// TestTheProcess under its own account, with the manifests' rights: it waits for the
// kind, begins and removes a remediation of a kind it has rights for by their label,
// and may do nothing else to a Node.
func TestTheProcess(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{Controllers: true, Nodes: 2, NodePrefix: "nhc"})
	apply(t, cluster, chart+"manifests/rbac.yaml", chart+"manifests/node-health-check.yaml",
		chart+"crds/janitor.dgxc.nvidia.com_rebootnodes.yaml", chart+"crds/janitor.dgxc.nvidia.com_rebootnodetemplates.yaml")
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), "nvsentinel", name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	running := daemon.RunForTest(t, name, defaultConfig(), build, "--kubeconfig="+kubeconfig, "--dry-run=false", "--leader-elect")
	testkit.Until(t, waitTimeout, func() bool { return strings.Contains(get(t, running.Address), "NodeHealthCheck is not served") })
	apply(t, cluster, chart+"manifests/crds/remediation.medik8s.io_nodehealthchecks.yaml", "testdata/check.yaml")

	if err := cluster.SetPower(t.Context(), "nhc-0", false); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, waitTimeout, func() bool {
		_, err := cluster.Dynamic().Resource(reboots).Get(t.Context(), "nhc-0", metav1.GetOptions{})
		return err == nil
	})
	testkit.Until(t, waitTimeout, func() bool { return phase(t, cluster) == string(v1alpha1.PhaseRemediating) })
	err = cluster.Dynamic().Resource(checks).Delete(t.Context(), "test", metav1.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), "deletion is prohibited due to running remediation") {
		t.Errorf("deleting the check while it remediates: %v", err)
	}
	account(t, cluster, kubeconfig)
	if err := cluster.SetPower(t.Context(), "nhc-0", true); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, waitTimeout, func() bool {
		_, err := cluster.Dynamic().Resource(reboots).Get(t.Context(), "nhc-0", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && phase(t, cluster) == string(v1alpha1.PhaseEnabled)
	})
	testkit.Until(t, waitTimeout, func() bool {
		n, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), "nhc-0", metav1.GetOptions{})
		return err == nil && n.Annotations[v1alpha1.ConfirmedHealthyAnnotation] == "" // taken off by the process
	})
	if err := cluster.Dynamic().Resource(checks).Delete(t.Context(), "test", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if code := running.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// account checks what the account may do to a Node; a person confirms its health.
func account(t *testing.T, cluster *localcluster.Cluster, kubeconfig string) {
	t.Helper()
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	person := cluster.Client().CoreV1().Nodes()
	if _, err := person.Patch(t.Context(), "nhc-0", types.MergePatchType, []byte(`{"metadata":{"annotations":{"remediation.medik8s.io/manually-confirmed-healthy":"by me"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, patch := range []string{
		`{"metadata":{"labels":{"x":"y"}}}`, `{"metadata":{"annotations":{"x":"y"}}}`, `{"spec":{"unschedulable":true}}`,
		`{"metadata":{"finalizers":["x/y"]}}`, `{"metadata":{"annotations":{"kwok.x-k8s.io/node":null}}}`,
	} {
		testkit.Until(t, waitTimeout, func() bool { // a policy holds a moment after it was applied
			_, err := client.CoreV1().Nodes().Patch(t.Context(), "nhc-0", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return apierrors.IsForbidden(err)
		})
	}
}

func phase(t *testing.T, cluster *localcluster.Cluster) string {
	t.Helper()
	o, err := cluster.Dynamic().Resource(checks).Get(t.Context(), "test", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	return phase
}

func get(t *testing.T, address string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

func TestConfig(t *testing.T) {
	for _, args := range [][]string{{"--workers=0"}, {"--lease-namespace="}, {"--kube-api-qps=-1"}, {"--unknown"}} {
		if code := daemon.RunForTest(t, name, defaultConfig(), build, append(args, "--check-config")...).Wait(); code != 2 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	if !defaultConfig().DryRun {
		t.Error("it is no dry run by default")
	}
}
