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
	for name, tc := range map[string]struct {
		labels map[string]string
		values string
		want   bool
	}{
		"GPUs":                          {map[string]string{present: "true"}, "", true},
		"no GPUs":                       {nil, "", false},
		"GPUs are denied":               {map[string]string{present: "false"}, "", false},
		"GPUs lost, in quarantine":      {map[string]string{nodemark.StateLabel: "quarantined"}, "", true},
		"GPUs lost, known to labeler":   {map[string]string{nodemark.CountLabelsOf("gpu").Expected: "1"}, "", true},
		"labeler never saw any":         {map[string]string{nodemark.CountLabelsOf("gpu").Expected: "0"}, "", false},
		"Windows":                       {map[string]string{present: "true", corev1.LabelOSStable: "windows"}, "", false},
		"every node":                    {nil, ours + "nodeSelector.nvidia\\.com/gpu\\.present=null", true},
		"a label of one's own, without": {map[string]string{present: "true"}, ours + "nodeSelector.pool=gpu", false},
		"a label of one's own, with":    {map[string]string{nodemark.StateLabel: "quarantined", "pool": "gpu"}, ours + "nodeSelector.pool=gpu", true},
		"an affinity of one's own":      {map[string]string{nodemark.StateLabel: "quarantined"}, "--set-json=syslogHealthMonitor.affinity={\"podAffinity\":{}}", false},
	} {
		t.Run(name, func(t *testing.T) {
			values := []string{file("store")}
			if tc.values != "" {
				values = append(values, tc.values)
			}
			spec := workloads(t, rendered(t, values...))["syslog-health-monitor"].Spec
			labels := map[string]string{corev1.LabelOSStable: "linux"}
			maps.Copy(labels, tc.labels)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}}
			match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec}).Match(node)
			if err != nil || match != tc.want {
				t.Errorf("the pod may go to the Node: %v, %v; want %v", match, err, tc.want)
			}
		})
	}
}
