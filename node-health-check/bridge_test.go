package nodehealthcheck

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

var reported = v1alpha1.GroupVersion.WithResource("healtheventremediations")

// fakeConnector takes what the process reports.
type fakeConnector struct {
	protos.UnimplementedPlatformConnectorServer
	mu     sync.Mutex
	events []*protos.HealthEvent
}

func (f *fakeConnector) HealthEventOccurredV1(_ context.Context, in *protos.HealthEvents) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, in.GetEvents()...)
	return &emptypb.Empty{}, nil
}

// strategies are the strategies of the faults and, with a minus, of the recoveries.
func (f *fakeConnector) strategies() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		sign := "+"
		if e.GetIsHealthy() {
			sign = "-"
		}
		out = append(out, sign+e.GetNodeName()+" "+e.GetProcessingStrategy().String())
	}
	return out
}

// TestTheBridge under the process's own account, with the manifests' rights: an
// unhealthy node is reported and, when it is healthy again, reported as that; nobody
// else may make such a word.
func TestTheBridge(t *testing.T) {
	// A cluster of its own: TestTheProcess begins without the kind.
	cluster := localcluster.ForTest(t, localcluster.Options{Controllers: true, Nodes: 1, NodePrefix: "nhb"})
	apply(t, cluster, chart+"manifests/rbac.yaml", chart+"manifests/node-health-check.yaml", chart+"manifests/node-health-check-bridge.yaml",
		chart+"manifests/crds/remediation.medik8s.io_nodehealthchecks.yaml",
		chart+"manifests/crds/nvsentinel.dgxc.nvidia.com_healtheventremediations.yaml",
		chart+"manifests/crds/nvsentinel.dgxc.nvidia.com_healtheventremediationtemplates.yaml", "testdata/bridge.yaml")
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), "nvsentinel", name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d, server := &fakeConnector{}, grpc.NewServer()
	protos.RegisterPlatformConnectorServer(server, d)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	running := daemon.RunForTest(t, name, defaultConfig(), build, "--kubeconfig="+kubeconfig, "--dry-run=false", "--bridge", "--platform-connector-socket="+socket)

	broken(t, cluster, corev1.ConditionTrue)
	objects := cluster.Dynamic().Resource(reported)
	testkit.Until(t, waitTimeout, func() bool {
		o, err := objects.Get(t.Context(), "nhb-0", metav1.GetOptions{})
		if err != nil {
			return false
		}
		id, _, _ := unstructured.NestedString(o.Object, "status", "eventID")
		return id != ""
	})
	stranger := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind, "metadata": map[string]any{"name": "x"}}}
	testkit.Until(t, waitTimeout, func() bool { // a policy holds a moment after it was applied
		_, err := objects.Create(t.Context(), stranger, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
	broken(t, cluster, corev1.ConditionFalse)
	testkit.Until(t, waitTimeout, func() bool {
		_, err := objects.Get(t.Context(), "nhb-0", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if got, want := slices.Compact(d.strategies()), []string{"+nhb-0 PERSIST_ONLY", "-nhb-0 PERSIST_ONLY"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	testkit.Until(t, waitTimeout, func() bool { // refused until the check's status names no remediation
		err := cluster.Dynamic().Resource(checks).Delete(t.Context(), "bridge", metav1.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err)
	})
	if code := running.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// broken sets a condition of node nhb-0.
func broken(t *testing.T, cluster *localcluster.Cluster, is corev1.ConditionStatus) {
	t.Helper()
	patch := `{"status":{"conditions":[{"type":"Broken","status":"` + string(is) + `","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	if _, err := cluster.Client().CoreV1().Nodes().Patch(t.Context(), "nhb-0", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}
