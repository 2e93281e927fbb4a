package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/cluster"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// TestAnUncoveredNodeIsReported by what a real API server shows, to a real store:
// a Node without pods, and its recovery when they are Ready.
func TestAnUncoveredNodeIsReported(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	records, c := s.records(), testclock.NewFakeClock(time.Now())
	config := cluster.DefaultCoverage()
	config.Namespace, config.After = s.cluster.Namespace(t), time.Minute
	nodes := kube.WatchNodes(s.cluster.Client(), cluster.StripNode)
	watch := cluster.NewCoverage(cluster.CoverageOptions{
		Config: config, Client: s.cluster.Client(), Nodes: nodes, Records: records, Clock: c, Log: slog.New(slog.DiscardHandler),
	}, prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel()
	for _, run := range []func(context.Context) error{nodes.Run, watch.Cache, watch.Run} {
		ended.Go(func() { _ = run(ctx) })
	}
	reported := func(want string) {
		t.Helper()
		await(t, func() (bool, string) {
			c.Step(15 * time.Second)
			list, err := records.List(t.Context(), store.Query{Selector: record.Coverage()})
			var got []string
			for _, r := range list {
				if r.Event.NodeName == nodeName {
					got = append(got, fmt.Sprint(r.Event.IsHealthy, " ", r.Event.ProcessingStrategy))
				}
			}
			return strings.Join(got, ", ") == want, fmt.Sprintf("there is %q, %v", got, err)
		})
	}
	reported("false PERSIST_ONLY")
	for _, name := range []string{"syslog-health-monitor", "platform-connectors"} {
		s.ready(config.Namespace, name)
	}
	reported("false PERSIST_ONLY, true PERSIST_ONLY")
}

// ready is a pod of the suite that is Ready on the node.
func (s *site) ready(namespace, name string) {
	s.t.Helper()
	pods := s.cluster.Client().CoreV1().Pods(namespace)
	pod, err := pods.Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "nvsentinel"}},
		Spec:       corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := pods.UpdateStatus(s.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}
