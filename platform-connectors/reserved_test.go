package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// TestACheckOfAnotherAgentBlocksNoOther: a monitor's outbox, the shared publisher and a
// real connector. An event whose check belongs to another agent waits before, between and
// behind others; the others are stored.
func TestACheckOfAnotherAgentBlocksNoOther(t *testing.T) {
	p := newPlace(t, "--kubernetes=false")
	p.makeStoreReachable()
	p.start()
	conn, err := report.Dial("unix://"+p.socket, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	outbox, err := report.Open(filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, check := range []string{"GpuBroken", "Good", "GpuBroken", "Good", "CSPMaintenance"} {
		e := event("kubernetes-object-monitor", i+1)
		e.Agent, e.CheckName = "kubernetes-object-monitor", check
		if err := outbox.Write(func(tx *report.Tx) error { return tx.Append(e) }); err != nil {
			t.Fatal(err)
		}
	}
	publisher := &report.Publisher{
		Name: "kubernetes-object-monitor", Outbox: outbox, Connector: p.client(), Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Metrics: report.NewMetrics(prometheus.NewRegistry(), "test", outbox, clock.RealClock{}),
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	began, records := time.Now(), p.records()
	go func() { done <- publisher.Run(ctx) }()
	await(t, func() (bool, string) {
		all, err := records.List(t.Context(), store.Query{})
		good := 0
		for _, r := range all {
			if r.Event.CheckName == "Good" {
				good++
			}
		}
		return err == nil && good == 2 && good == len(all), fmt.Sprintf("%d of %d records are the others', %v", good, len(all), err)
	})
	t.Logf("the others were stored within %s, the start of the connector included", time.Since(began))
	await(t, func() (bool, string) {
		s := outbox.Stats()
		return s.Entries == 0 && s.Dead == 3, fmt.Sprintf("%d events wait and %d are dead letters, want none and 3", s.Entries, s.Dead)
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := outbox.Close(); err != nil {
		t.Error(err)
	}
}
