package sink

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

// TestNodeReportsPendingEvents: the Node reports that events have waited for long, and when
// they no longer do; other conditions stay as they are.
func TestNodeReportsPendingEvents(t *testing.T) {
	clk := testkit.NewClock()
	client := fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-7"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}}},
	})
	nodes, reported := client.CoreV1().Nodes(), 0
	node := func() *corev1.Node {
		n, err := nodes.Get(t.Context(), "gpu-7", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var backlog conditions.Backlog
	w := &DeliveryWatch{
		Backlog: func() conditions.Backlog { return backlog }, OnLate: func() { reported++ }, Node: node, Client: &nodeclient.Client{Nodes: nodes},
		Clock: clk, Log: slog.New(slog.DiscardHandler),
	}
	w.Register(prometheus.NewRegistry())
	look := func(after time.Duration, want string, seconds float64, reports int) {
		t.Helper()
		clk.Step(after)
		if err := w.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, ready := "", false
		for _, c := range node().Status.Conditions {
			if c.Type == "EventDelivery" {
				got = string(c.Status) + " " + c.Message
			}
			ready = ready || c.Type == "Ready"
		}
		if got != want || !ready {
			t.Errorf("the Node says %q, ready %v; want %q", got, ready, want)
		}
		if n := testutil.ToFloat64(w.seconds.WithLabelValues("true")); n != seconds {
			t.Errorf("a fatal fault waits for %v seconds, want %v", n, seconds)
		}
		if reported != reports {
			t.Errorf("told %d times, want %d", reported, reports)
		}
	}
	look(0, "", 0, 0)
	backlog = conditions.Backlog{Since: clk.Now(), Fatal: true, Problem: "no connection"}
	look(10*time.Second, "", 10, 0)
	const waits = "True events have been pending on this node since 2026-01-02T03:04:05Z, including a fatal fault: no connection"
	look(20*time.Second, waits, 30, 1)
	look(5*time.Second, waits, 35, 1)
	backlog = conditions.Backlog{Delivered: true}
	look(5*time.Second, "False No Health Failures", 0, 1)
	writes := len(client.Actions())
	look(5*time.Second, "False No Health Failures", 0, 1)
	for _, a := range client.Actions()[writes:] {
		if a.GetVerb() != "get" {
			t.Errorf("nothing is new, and there is a %s", a.GetVerb())
		}
	}
}

// TestWithoutKubernetes there is the metric and the log.
func TestWithoutKubernetes(t *testing.T) {
	clk, reported := testkit.NewClock(), 0
	w := &DeliveryWatch{
		Backlog: func() conditions.Backlog { return conditions.Backlog{Since: testkit.Start} }, OnLate: func() { reported++ },
		Node: func() *corev1.Node { return nil }, Clock: clk, Log: slog.New(slog.DiscardHandler),
	}
	w.Register(prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	testkit.Until(t, time.Minute, func() bool {
		clk.Step(deliveryEvery)
		return testutil.ToFloat64(w.seconds.WithLabelValues("false")) >= 30
	})
	cancel()
	if err := <-done; err != nil || reported != 1 {
		t.Errorf("%v, told %d times", err, reported)
	}
}
