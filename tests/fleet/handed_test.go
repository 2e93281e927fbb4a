package fleet

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The nodes of the test.
const (
	handed = "gpu-0" // falls ill by a condition that only its NodeHealthCheck knows
	home   = "gpu-1" // where node-health-check runs
)

// handing has a node with the condition Broken handed to the quarantine.
const handing = `
apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1
kind: HealthEventRemediationTemplate
metadata: {name: quarantine}
spec:
  template:
    spec: {processingStrategy: PROCESS}
---
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: handing}
spec:
  selector: {matchLabels: {nvidia.com/gpu.present: "true"}}
  minHealthy: 1
  unhealthyConditions:
    - {type: Broken, status: "True", duration: 0s}
  remediationTemplate: {apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1, kind: HealthEventRemediationTemplate, name: quarantine}
`

// spokesman lets node-health-check publish events about all nodes, as its page states.
const spokesman = `
[[publishers.agent]]
name = "node-health-check"
account = "system:serviceaccount:nvsentinel:node-health-check"
clusterWide = true
checks = ["NodeHealthCheck"]
`

// betweenWrites are all places of node-health-check between two writes.
var betweenWrites = []string{"acted", "claimed", "created", "guarded", "reported", "mirrored", "recovered"}

// TestHandedToTheQuarantine: with every service as a process of its own, a node that a
// NodeHealthCheck hands to the quarantine goes from the cordon to the release, with
// one fault, one reboot and one recovery, although node-health-check is killed between
// every two of its writes.
func TestHandedToTheQuarantine(t *testing.T) {
	testkit.Long(t, "node-health-check's internal/bridge TestCrashBetweenTwoWrites and TestTheBridge, on a real API server")
	once := t.TempDir()
	b := startHanded(t, once)
	b.condition(corev1.ConditionTrue)
	b.rebooted(handed)
	b.condition(corev1.ConditionFalse)
	b.until(func(ctx context.Context) (bool, error) { return b.inService(ctx, handed) })
	remediations := schema.GroupVersionResource{Group: "nvsentinel.dgxc.nvidia.com", Version: "v1alpha1", Resource: "healtheventremediations"}
	b.until(func(ctx context.Context) (bool, error) {
		_, err := b.fleet.Cluster.Dynamic().Resource(remediations).Get(ctx, handed, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if n, err := b.fleet.Reboots(handed); n != 1 || err != nil || b.objects(t.Context(), handed) != 1 {
		t.Errorf("%d reboots, %v; %d maintenance objects", n, err, b.objects(t.Context(), handed))
	}
	b.expectOneFault()
	for _, point := range betweenWrites {
		_, err := os.Stat(filepath.Join(once, nodeHealthCheck+"_"+point))
		if point == "created" && errors.Is(err, fs.ErrNotExist) {
			// The bridge saw the object, and its process was killed, before the API server's
			// answer came to who made it: a death between the same two writes.
			_, err = os.Stat(filepath.Join(once, nodeHealthCheck+"_guarded"))
		}
		if err != nil {
			t.Errorf("it was not killed at %s: %v", point, err)
		}
	}
}

func startHanded(t *testing.T, once string) *pauseSuite {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard, "-tags", "crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	connectors := filepath.Join(t.TempDir(), "connectors.toml")
	if err := os.WriteFile(connectors, []byte(spokesman), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Nodes: 3, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, SettleTime: time.Second, RebootTime: time.Second,
		Publishers: connectors, RemediationFlags: []string{"--lease-namespace", "medik8s-leases"},
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(handed, 30))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	var kills []string
	for _, point := range betweenWrites {
		kills = append(kills, nodeHealthCheck+"/"+point)
	}
	env := []string{"NVSENTINEL_CRASH=" + strings.Join(kills, ","), "NVSENTINEL_CRASH_ONCE=" + once}
	startNodeHealthCheck(t, f, handing, env, "--bridge",
		"--platform-connector-socket=unix://"+f.Socket(home), "--platform-connector-token-path="+publisherToken(t, f))
	return &pauseSuite{t, f, map[string]int{}}
}

// publisherToken is the token that the chart projects into node-health-check's pod.
func publisherToken(t *testing.T, f *Fleet) string {
	t.Helper()
	pod, err := f.Cluster.AddPod(t.Context(), localcluster.PodSpec{
		Namespace: "nvsentinel", Name: nodeHealthCheck, Node: home, ServiceAccount: nodeHealthCheck,
	})
	if err != nil {
		t.Fatal(err)
	}
	token, err := f.Cluster.Client().CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), nodeHealthCheck, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{"platform-connector.nvsentinel.nvidia.com"},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token.Status.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// condition sets the condition by which the node is ill.
func (ps *pauseSuite) condition(is corev1.ConditionStatus) {
	ps.Helper()
	patch := []byte(`{"status":{"conditions":[{"type":"Broken","status":"` + string(is) + `","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	_, err := ps.fleet.Cluster.Client().CoreV1().Nodes().Patch(ps.Context(), handed, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		ps.Fatal(err)
	}
}

// expectOneFault: the node has one fault and one recovery, and was in quarantine once. The kernel
// log monitor reports the recovery of its checks too, as soon as it has noticed the reboot.
func (ps *pauseSuite) expectOneFault() {
	ps.Helper()
	records, err := ps.fleet.Records(ps.Context(), handed)
	if err != nil {
		ps.Fatal(err)
	}
	var reported []string
	for _, r := range records {
		if r.IsFault() {
			reported = append(reported, "fault "+r.Event.Agent+" "+string(r.Status.NodeQuarantined))
		} else if r.Event.Agent == nodeHealthCheck {
			reported = append(reported, "recovery "+r.Event.Agent)
		}
	}
	want := []string{"fault " + nodeHealthCheck + " " + string(record.Quarantined), "recovery " + nodeHealthCheck}
	if !slices.Equal(reported, want) {
		ps.Errorf("told %q, want %q", reported, want)
	}
}
