package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
)

// objectMonitor is the agent whose policy has a name of another agent.
const objectMonitor = "kubernetes-object-monitor"

// runWith runs the connector in this process, on a clock of the test.
func (p *place) runWith(c clock.WithTicker) {
	p.t.Helper()
	daemon.RunForTest(p.t, "node-connector", nodeconnector.Default(), func(ctx context.Context, d *daemon.Daemon, cfg nodeconnector.Config) error {
		d.Clock = c
		return nodeconnector.Build(ctx, d, cfg)
	}, p.args...)
}

// outbox publishes what is written to it, as a monitor does.
func (p *place) outbox(agent string) *report.Outbox {
	p.t.Helper()
	outbox, err := report.Open(filepath.Join(p.t.TempDir(), "outbox.db"), report.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	publisher := &report.Publisher{
		Name: agent, Outbox: outbox, Connector: p.publisher(""), Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(p.t.Output(), nil)),
		Metrics: report.NewMetrics(prometheus.NewRegistry(), "test", outbox, clock.RealClock{}),
	}
	ctx, stop := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- publisher.Run(ctx) }()
	p.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
		if err := outbox.Close(); err != nil {
			p.t.Error(err)
		}
	})
	return outbox
}

// TestNodeEventNamesRejection: a policy has a check name of another agent. An Event of the
// connector's Node names both and the action to take. It is one Event, whose count is the
// number of rejected events, however much time passes.
func TestNodeEventNamesRejection(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	fake := testclock.NewFakeClock(time.Now())
	s.runWith(fake)
	outbox := s.outbox(objectMonitor)
	reject := func(seqs ...int) {
		t.Helper()
		for _, seq := range seqs {
			e := event(objectMonitor, seq)
			e.Agent, e.CheckName = objectMonitor, "GpuBroken"
			if err := outbox.Write(func(tx *report.Tx) error { return tx.Append(e) }); err != nil {
				t.Fatal(err)
			}
		}
		await(t, func() (bool, string) {
			stats := outbox.Stats()
			return stats.Entries == 0 && stats.Dead == seqs[len(seqs)-1], fmt.Sprintf("outbox %+v", stats)
		})
	}
	// reported waits for an Event that counts as many rejected events, or more.
	reported := func(count int32) corev1.Event {
		t.Helper()
		var all []corev1.Event
		await(t, func() (bool, string) {
			fake.Step(time.Second)
			all = s.rejections()
			return len(all) > 0 && all[0].Count >= count, fmt.Sprintf("Events %v", all)
		})
		if len(all) != 1 || all[0].Count != count {
			t.Fatalf("Events %v, want one that counts %d", all, count)
		}
		return all[0]
	}

	reject(1, 2)
	e := reported(2)
	if o := e.InvolvedObject; o.Kind != "Node" || o.Name != nodeName || string(o.UID) != nodeName || e.Type != corev1.EventTypeWarning {
		t.Errorf("a %s about %+v", e.Type, o)
	}
	for _, want := range []string{
		`check "GpuBroken" belongs to agent "gpu-health-monitor" and not to "kubernetes-object-monitor"`,
		"use another check name (the check name of an object-monitor policy or an analyzer rule is its name)", `or assign it to "kubernetes-object-monitor" in publishers.agent of the connector`,
	} {
		if !strings.Contains(e.Message, want) {
			t.Errorf("message %q has no %q", e.Message, want)
		}
	}
	for range 20 {
		fake.Step(time.Minute)
	}
	reject(3)
	if again := reported(3); again.Name != e.Name || again.Message != e.Message {
		t.Errorf("another Event %q, %q", again.Name, again.Message)
	}
}

// rejections are the Events about rejected events, whatever they are about.
func (s *site) rejections() []corev1.Event {
	s.t.Helper()
	list, err := s.cluster.Client().CoreV1().Events("").List(s.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + forwarder.EventsRejected})
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}
