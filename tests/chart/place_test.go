package chart

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestMonitorsStayWhereGPUsWere: the fault that removes the last GPU of a node also
// removes the label by which monitors are placed. What the DaemonSet controller asks
// about a Node is asked here.
func TestMonitorsStayWhereGPUsWere(t *testing.T) {
	const present, ours = "nvidia.com/gpu.present", "--set=syslogHealthMonitor."
	stateful := map[string]string{nodemark.StateLabel: "quarantined"}
	known := map[string]string{nodemark.CountLabelsOf("gpu").Expected: "1"}
	for name, tc := range map[string]struct {
		labels map[string]string
		values string
		want   bool
	}{
		"GPUs":                          {map[string]string{present: "true"}, "", true},
		"no GPUs":                       {nil, "", false},
		"GPUs are denied":               {map[string]string{present: "false"}, "", false},
		"GPUs lost, in quarantine":      {stateful, "", true},
		"GPUs lost, known to labeler":   {known, "", true},
		"labeler never saw any":         {map[string]string{nodemark.CountLabelsOf("gpu").Expected: "0"}, "", false},
		"Windows":                       {map[string]string{present: "true", corev1.LabelOSStable: "windows"}, "", false},
		"every node":                    {nil, ours + "nodeSelector.nvidia\\.com/gpu\\.present=null", true},
		"a label of one's own, without": {map[string]string{present: "true"}, ours + "nodeSelector.pool=gpu", false},
		"a label of one's own, with":    {map[string]string{nodemark.StateLabel: "quarantined", "pool": "gpu"}, ours + "nodeSelector.pool=gpu", true},
		"an affinity of one's own":      {stateful, "--set-json=syslogHealthMonitor.affinity={\"podAffinity\":{}}", false},
	} {
		t.Run(name, func(t *testing.T) {
			values := []string{file("store")}
			if tc.values != "" {
				values = append(values, tc.values)
			}
			if match := mayGo(t, "syslog-health-monitor", tc.labels, values...); match != tc.want {
				t.Errorf("the pod may go to the Node: %v, want %v", match, tc.want)
			}
		})
	}
}

// TestNoMonitorKeepsANodeInQuarantine: a monitor of GPUs on a node that never had any
// would report that it has none.
func TestNoMonitorKeepsANodeInQuarantine(t *testing.T) {
	values := []string{file("store"), "--set=metadataCollector.enabled=true,nicHealthMonitor.enabled=true,gpuHealthMonitor.enabled=true"}
	for _, monitor := range []string{"gpu-health-monitor", "metadata-collector", "nic-health-monitor"} {
		if mayGo(t, monitor, map[string]string{nodemark.StateLabel: "quarantined"}, values...) {
			t.Errorf("%s goes to a node in quarantine that has no GPU", monitor)
		}
		if !mayGo(t, monitor, map[string]string{nodemark.CountLabelsOf("gpu").Expected: "1"}, values...) {
			t.Errorf("%s leaves a node that had GPUs", monitor)
		}
	}
}

// mayGo asks what the DaemonSet controller asks of a Linux node with these labels.
func mayGo(t *testing.T, workload string, labels map[string]string, values ...string) bool {
	t.Helper()
	all := map[string]string{corev1.LabelOSStable: "linux"}
	maps.Copy(all, labels)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: all}}
	pod := &corev1.Pod{Spec: workloads(t, rendered(t, values...))[workload].Spec}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil {
		t.Fatal(err)
	}
	return match
}
