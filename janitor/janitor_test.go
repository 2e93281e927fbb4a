package janitor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

// childEnv makes this test binary the janitor itself.
const childEnv = "JANITOR_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		daemon.Main(name, purpose, defaultConfig(), build)
		return
	}
	os.Exit(localcluster.Main(m))
}

// cloud reboots nodes of the local cluster by giving them another boot id.
type cloud struct {
	v1.UnimplementedCSPPluginServiceServer
	cluster *localcluster.Cluster
	signals atomic.Int32
	// throttle is how many signals are turned away first.
	throttle atomic.Int32
}

func (c *cloud) SendRebootSignal(ctx context.Context, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	if c.throttle.Add(-1) >= 0 {
		return nil, status.Error(codes.ResourceExhausted, "too many requests")
	}
	boot := fmt.Sprintf("boot-%d", c.signals.Add(1)+1)
	patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, boot)
	_, err := c.cluster.Client().CoreV1().Nodes().Patch(ctx, req.GetNodeName(), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &v1.SendRebootSignalResponse{RequestId: "request of " + req.GetIdempotencyKey()}, nil
}

func (c *cloud) IsNodeReady(context.Context, *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	return &v1.IsNodeReadyResponse{IsReady: true}, nil
}

func serve(t *testing.T, impl v1.CSPPluginServiceServer) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- plugin.Serve(ctx, lis, impl, plugin.Options{}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return lis.Addr().String()
}

func install(t *testing.T, cluster *localcluster.Cluster) {
	t.Helper()
	for _, kind := range []string{"rebootnodes", "terminatenodes", "gpuresets"} {
		text, err := os.ReadFile("../distros/helm/nvsentinel/crds/janitor.dgxc.nvidia.com_" + kind + ".yaml")
		if err == nil {
			err = cluster.Apply(t.Context(), bytes.NewReader(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// eventually asks until ok or the deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("%s did not happen in time", what)
		case <-tick.C:
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// The whole binary: watches, a plugin over gRPC, success, metrics.
func TestJanitorRebootsANode(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	install(t, cluster)
	name := cluster.Namespace(t)
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-1"}); err != nil {
		t.Fatal(err)
	}
	impl := &cloud{cluster: cluster}
	impl.throttle.Store(1)
	file := filepath.Join(t.TempDir(), "janitor.toml")
	toml := fmt.Sprintf("[global]\ncspPluginHost = %q\n[rebootNodeController]\npollInterval = \"1h\"\n", serve(t, impl))
	if err := os.WriteFile(file, []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	running := daemon.RunForTest(t, "janitor", defaultConfig(), build,
		"--config", file, "--kubeconfig", cluster.AdminKubeconfig(), "--leader-elect", "--leader-elect-namespace", name,
		// No slow machine loses the lease.
		"--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=5m")
	eventually(t, "readiness", func() bool {
		code, _ := get(t, "http://"+running.Address+"/readyz")
		return code == http.StatusOK
	})

	objects, err := reconciler.Objects(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RebootNodeSpec{NodeName: name}}
	if err := objects.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reboot", func() bool {
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		return object.Status.CompletionTime != nil && len(object.Finalizers) == 0
	})
	st := object.Status
	if !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionNodeReady) || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionSignalSent) {
		t.Errorf("conditions are %v", st.Conditions)
	}
	if st.RequestID != "request of "+string(object.UID) || st.PreRebootBootID != "boot-1" || st.ObservedBootID != "boot-2" {
		t.Errorf("status is %+v", st)
	}
	node, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || node.Annotations[nodemark.RepairAnnotation] != "" {
		t.Errorf("the claim is still there: %v, %v", node.Annotations, err)
	}
	if got := impl.signals.Load(); got != 1 {
		t.Errorf("%d signals took effect, want 1", got)
	}
	_, metrics := get(t, "http://"+running.Address+"/metrics")
	for _, want := range []string{
		`janitor_actions_count{action_type="reboot",status="started"} 1`,
		`janitor_actions_count{action_type="reboot",status="succeeded"} 1`,
		`nvsentinel_janitor_signals_total{action_type="reboot",result="not_sent"} 1`,
		`nvsentinel_janitor_signals_total{action_type="reboot",result="acknowledged"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// An operator who enables nothing gets a janitor that idles.
func TestNothingEnabled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "janitor.toml")
	if err := os.WriteFile(file, []byte("[rebootNodeController]\nenabled = false\n[terminateNodeController]\nenabled = false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	running := daemon.RunForTest(t, "janitor", defaultConfig(), build, "--config", file)
	eventually(t, "readiness", func() bool {
		code, _ := get(t, "http://"+running.Address+"/readyz")
		return code == http.StatusOK
	})
	if code := running.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A janitor that starts before its kind is served waits, reports it, and goes on
// by itself when the definition comes.
func TestMissingKindAppearsLater(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{NodePrefix: "late"}) // one without definitions
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: "late-1", BootID: "boot-1"}); err != nil {
		t.Fatal(err)
	}
	impl := &cloud{cluster: cluster}
	running := daemon.RunForTest(t, "janitor", defaultConfig(), build, "--kubeconfig", cluster.AdminKubeconfig(), "--csp-plugin-host", serve(t, impl))
	eventually(t, "readiness that names the kind", func() bool {
		code, text := get(t, "http://"+running.Address+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "RebootNode is not served by the API server")
	})
	install(t, cluster)
	eventually(t, "readiness", func() bool {
		code, _ := get(t, "http://"+running.Address+"/readyz")
		return code == http.StatusOK
	})
	reboots(t, cluster, "late-1")
	if got := impl.signals.Load(); got != 1 {
		t.Errorf("%d signals took effect, want 1", got)
	}
}

// The API server is away from the moment the plugin has the signal until after
// the machine has rebooted: one signal, and the reboot is recorded.
func TestAPIServerAwayAfterTheSignal(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{NodePrefix: "away"})
	install(t, cluster)
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: "away-1", BootID: "boot-1"}); err != nil {
		t.Fatal(err)
	}
	impl := &outage{cloud: cloud{cluster: cluster}, back: make(chan error, 1)}
	daemon.RunForTest(t, "janitor", defaultConfig(), build, "--kubeconfig", cluster.AdminKubeconfig(), "--csp-plugin-host", serve(t, impl), "--poll-interval=1s")
	object := reboots(t, cluster, "away-1")
	if err := <-impl.back; err != nil {
		t.Fatal(err)
	}
	if got := impl.signals.Load(); got != 1 || object.Status.Signals != 1 {
		t.Errorf("%d signals took effect and %d were counted, want 1", got, object.Status.Signals)
	}
}

// outage is a cloud that takes the API server along with the machine.
type outage struct {
	cloud
	back chan error
}

func (o *outage) SendRebootSignal(ctx context.Context, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	answer, err := o.cloud.SendRebootSignal(ctx, req)
	o.cluster.StopAPIServer()
	go func() { o.back <- o.cluster.StartAPIServer(context.WithoutCancel(ctx)) }()
	return answer, err
}

// reboots creates an object for a node and follows it to its good end.
func reboots(t *testing.T, cluster *localcluster.Cluster, node string) *v1alpha1.RebootNode {
	t.Helper()
	objects, err := reconciler.Objects(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.RebootNodeSpec{NodeName: node}}
	eventually(t, "the object", func() bool { return objects.Create(t.Context(), object) == nil })
	eventually(t, "the reboot", func() bool {
		err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		return err == nil && object.Status.CompletionTime != nil && len(object.Finalizers) == 0
	})
	if !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionNodeReady) {
		t.Errorf("conditions are %v", object.Status.Conditions)
	}
	return object
}

// A mistake in the configuration ends the start and names the key.
func TestUnknownKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "janitor.toml")
	if err := os.WriteFile(file, []byte("[global]\ncspPluginHost = 'p:1'\n[rebootNodeController]\ncolour = 'red'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	running := daemon.RunForTest(tee{t, &output}, "janitor", defaultConfig(), build, "--config", file)
	if code := running.Wait(); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	if !strings.Contains(output.String(), "rebootNodeController.colour") {
		t.Errorf("said %q, want the key", output.String())
	}
}

// tee keeps what a service logs.
type tee struct {
	*testing.T
	output *bytes.Buffer
}

func (t tee) Output() io.Writer { return io.MultiWriter(t.T.Output(), t.output) }
