package eventrecorder_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// eventsOf are the Events about an object, "count type component reason: message".
func eventsOf(t *testing.T, cluster *localcluster.Cluster, uid string) []string {
	t.Helper()
	list, err := cluster.Client().CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + uid})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		out = append(out, fmt.Sprintf("%d %s %s/%s %s: %s", e.Count, e.Type, e.Namespace, e.Source.Component, e.Reason, e.Message))
	}
	slices.Sort(out)
	return out
}

// TestEventLifecycle runs a service with a recorder on a real API server, and ends it: its
// Events are there, repeats are one Event with a count, and the next run makes
// a new one. kubectl describe finds those of a Node by its name.
func TestEventLifecycle(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	node := strings.Repeat("n", 253)
	config := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: cluster.Namespace(t), Name: "c", UID: "config-1"}
	build := func(ctx context.Context, d *daemon.Daemon, _ struct{}) error {
		client, err := kube.ForConfig(cluster.RESTConfig(), kube.Config{}, "test")
		if err != nil {
			return err
		}
		r := eventrecorder.Start(d, client)
		for range 2 {
			r.Event(eventrecorder.Node(node), corev1.EventTypeNormal, "NodeQuarantined", "session s1 opened")
			r.Write(ctx, eventrecorder.Node(node), corev1.EventTypeWarning, "ManualInterventionRequired", "record r1")
			r.Event(config, corev1.EventTypeWarning, "PoliciesRefused", strings.Repeat("ü", 600))
		}
		return nil
	}
	want := []string{
		"2 Normal default/nvsentinel-test NodeQuarantined: session s1 opened",
		"2 Warning default/nvsentinel-test ManualInterventionRequired: record r1",
	}
	wantConfig := []string{"2 Warning " + config.Namespace + "/nvsentinel-test PoliciesRefused: " + strings.Repeat("ü", 510) + "..."}
	for range 2 {
		if code := daemon.RunForTest(t, "test", struct{}{}, build).Stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if diff := cmp.Diff(want, eventsOf(t, cluster, node)); diff != "" {
			t.Errorf("about the Node (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantConfig, eventsOf(t, cluster, "config-1")); diff != "" {
			t.Errorf("about the ConfigMap (-want +got):\n%s", diff)
		}
		want, wantConfig = slices.Sorted(slices.Values(append(want, want...))), append(wantConfig, wantConfig...)
	}
}

// TestAnEventThatExpired: the API server forgets Events after an hour; a repeat then
// makes a new one.
func TestAnEventThatExpired(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	r := eventrecorder.New(cluster.Client(), eventrecorder.Component("test"), clock.RealClock{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	for range 2 {
		r.Write(t.Context(), eventrecorder.Node("expired"), corev1.EventTypeNormal, "RebootSignal", "m")
		if got := eventsOf(t, cluster, "expired"); len(got) != 1 {
			t.Errorf("%q, want one Event", got)
		}
		err := cluster.Client().CoreV1().Events("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "involvedObject.uid=expired"})
		if err != nil {
			t.Fatal(err)
		}
	}
}
