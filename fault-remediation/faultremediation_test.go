package faultremediation

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// childEnv makes this test binary the service itself.
const childEnv = "FAULT_REMEDIATION_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		daemon.Main(name, purpose, defaultConfig(), build)
		return
	}
	os.Exit(localcluster.Main(m))
}

var rebootNodes = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}

// TestService runs the whole service: a drained fault becomes a RebootNode; the
// service is stopped, the reboot succeeds, the service is started again and
// records it; the next outcome is noticed by the watch.
func TestService(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	applyCRD(t, cluster)
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "records.db")
	records, err := storeopen.Open(t.Context(), dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	w := &world{t: t, cluster: cluster, records: records}
	w.addNode("service-a")
	run := func() *daemon.Running {
		return daemon.RunForTest(t, name, defaultConfig(), build, "--store="+dsn, "--single-host", "--kubeconfig="+cluster.AdminKubeconfig())
	}

	service := run()
	w.drainedFault("r1", "service-a")
	object := w.waitForObject("service-a")
	w.waitForRecord("r1", "the uid is stamped", func(s record.Status) bool {
		return s.Remediation != nil && s.Remediation.Attempts[0].UID == string(object.GetUID())
	})
	if code := service.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	w.reboot(object)

	service = run()
	w.waitForRecord("r1", "the reboot is recorded after a restart", func(s record.Status) bool { return record.Remediated(s) == "true" })
	w.waitForLabel("service-a", nodemark.RemediationSucceeded)
	w.waitReady(service.Address)

	w.addNode("service-b")
	w.drainedFault("r2", "service-b")
	w.reboot(w.waitForObject("service-b"))
	w.waitForRecord("r2", "the watch notices the outcome", func(s record.Status) bool { return record.Remediated(s) == "true" })
}

// applyCRD defines RebootNode.
func applyCRD(t testing.TB, cluster *localcluster.Cluster) {
	t.Helper()
	crd, err := os.Open("../distros/helm/nvsentinel/crds/janitor.dgxc.nvidia.com_rebootnodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer crd.Close()
	if err := cluster.Apply(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := cluster.Dynamic().Resource(rebootNodes).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("RebootNode is not served: %v", err)
	}
}

type world struct {
	t       testing.TB
	cluster *localcluster.Cluster
	records store.Store
	message string // of the faults that are stored
}

func (w *world) addNode(name string) {
	w.t.Helper()
	_, err := w.cluster.AddNode(w.t.Context(), localcluster.NodeSpec{
		Name: name, BootID: "boot-1", Annotations: map[string]string{nodemark.SessionAnnotation: "session-" + name},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := w.cluster.Client().CoreV1().Nodes().Patch(w.t.Context(), name, types.MergePatchType, cordon, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	n, err := w.cluster.Client().CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// drainedFault stores a fault and updates its status as the services before this one do.
func (w *world) drainedFault(id, node string) {
	w.t.Helper()
	w.quarantinedFault(id, node)
	w.updateStatus(record.NodeDrainer, id, drained)
}

func drained(s *record.Status) { s.UserPodsEvictionStatus.Status = record.EvictionSucceeded }

// quarantinedFault stores a fault in quarantine.
func (w *world) quarantinedFault(id, node string) {
	w.t.Helper()
	now := time.Now()
	r := record.Record{ID: id, CreatedAt: now, Node: kube.NodeIdentity(w.node(node)), Event: record.Event{
		ID: id, NodeName: node, Agent: "test", Message: w.message, RecommendedAction: record.ActionRestartVM, ProcessingStrategy: record.Process,
		GeneratedTimestamp: now, Metadata: map[string]string{record.MetadataBootID: "boot-1"},
	}}
	if _, err := w.records.Append(w.t.Context(), []record.Record{r}); err != nil {
		w.t.Fatal(err)
	}
	w.updateStatus(record.FaultQuarantine, id, func(s *record.Status) {
		s.NodeQuarantined, s.Session = record.Quarantined, "session-"+node
		s.QuarantineVerdict = &record.Verdict{Reason: record.Matched, NodeBootID: "boot-1", At: now}
		s.Faults = []record.Fault{{Key: id}}
	})
}

func (w *world) updateStatus(writer record.Writer, id string, change func(*record.Status)) {
	w.t.Helper()
	r, err := w.records.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	change(&r.Status)
	if _, err := w.records.Update(w.t.Context(), writer, []store.Change{{ID: id, Revision: r.Revision, Status: r.Status}}); err != nil {
		w.t.Fatal(err)
	}
}

// reboot plays the janitor and the machine.
func (w *world) reboot(o *unstructured.Unstructured) {
	w.t.Helper()
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	boot := []byte(`{"status":{"nodeInfo":{"bootID":"boot-2"}}}`)
	if _, err := w.cluster.Client().CoreV1().Nodes().Patch(w.t.Context(), node, types.MergePatchType, boot, metav1.PatchOptions{}, "status"); err != nil {
		w.t.Fatal(err)
	}
	status, err := json.Marshal(map[string]any{"status": map[string]any{
		"preRebootBootID": "boot-1", "observedBootID": "boot-2",
		"conditions": []metav1.Condition{{Type: "NodeReady", Status: "True", Reason: "Succeeded", LastTransitionTime: metav1.Now()}},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.cluster.Dynamic().Resource(rebootNodes).Patch(w.t.Context(), o.GetName(), types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) waitForObject(node string) (found *unstructured.Unstructured) {
	w.t.Helper()
	w.eventually("a maintenance object of "+node, func(ctx context.Context) bool {
		list, err := w.cluster.Dynamic().Resource(rebootNodes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false
		}
		for i := range list.Items {
			if name, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "nodeName"); name == node {
				found = &list.Items[i]
			}
		}
		return found != nil
	})
	return found
}

func (w *world) waitForRecord(id, what string, met func(record.Status) bool) {
	w.t.Helper()
	w.eventually(what, func(ctx context.Context) bool {
		r, err := w.records.Get(ctx, id)
		return err == nil && met(r.Status)
	})
}

func (w *world) waitForLabel(node string, want nodemark.State) {
	w.t.Helper()
	w.eventually("the label "+string(want), func(context.Context) bool {
		return w.node(node).Labels[nodemark.StateLabel] == string(want)
	})
}

func (w *world) waitReady(address string) {
	w.t.Helper()
	w.eventually("readiness", func(ctx context.Context) bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func (w *world) eventually(what string, met func(context.Context) bool) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(w.t.Context(), 20*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) { return met(ctx), nil })
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// TestConfigMistake: a mistake in the configuration ends the start.
func TestConfigMistake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	text := "store = 'sqlite:///x.db'\n[remediationActions.RESTART_VM]\nkind = 'RebootNode'\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	service := daemon.RunForTest(tee{t, &output}, name, defaultConfig(), build, "--config="+file)
	if code := service.Wait(); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	if !strings.Contains(output.String(), `remediationActions."RESTART_VM"`) || !strings.Contains(output.String(), "equivalenceGroup: is required") {
		t.Errorf("said %q, want the action and its missing keys", output.String())
	}
}

// tee keeps what a service logs.
type tee struct {
	*testing.T
	output *strings.Builder
}

func (t tee) Output() io.Writer { return io.MultiWriter(t.T.Output(), t.output) }
