package nodeclient_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
)

// TestCountFault: equal faults raise a count, regardless of who reports them, and what an Event
// shows already is not counted again.
func TestCountFault(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	client, err := nodeclient.Connect(nodeclient.Config{Kubeconfig: cluster.AdminKubeconfig()}, "test")
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("f", 253), UID: "u1"}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := nodeclient.FaultEvent{Component: "gpu-health-monitor", Reason: "GpuInforomWatchIsNotHealthy", Message: "one", Times: 1}
	other := f
	other.Message = "two"
	for i, x := range []nodeclient.FaultEvent{f, f, other, f, f} {
		x.Last = at.Add(time.Duration(min(i, 3)) * time.Minute)
		if err := nodeclient.CountFault(t.Context(), client.Events, node, x); err != nil {
			t.Fatal(err)
		}
	}
	list, err := cluster.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + node.Name})
	if err != nil {
		t.Fatal(err)
	}
	var reported []string
	for _, e := range list.Items {
		reported = append(reported, fmt.Sprintf("%d %s %s/%s %s: %s", e.Count, e.Type, e.Namespace, e.Source.Component, e.Reason, e.Message))
	}
	slices.Sort(reported)
	want := []string{
		"1 Warning default/gpu-health-monitor GpuInforomWatchIsNotHealthy: two",
		"3 Warning default/gpu-health-monitor GpuInforomWatchIsNotHealthy: one",
	}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, e := range list.Items {
		if first, last := e.FirstTimestamp.Sub(at), e.LastTimestamp.Sub(at); e.Message == "one" && (first != 0 || last != 3*time.Minute) {
			t.Errorf("first %s, last %s", e.FirstTimestamp, e.LastTimestamp)
		}
	}
}
