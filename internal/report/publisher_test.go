package report_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/internal/report/reporttest"
)

// publish runs a publisher of b until the test ends.
func publish(t *testing.T, b *report.Outbox, c *reporttest.Connector, tokenFile string) *prometheus.Registry {
	t.Helper()
	conn, err := report.Dial(c.Target(), tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	p := &report.Publisher{
		Name: "test", Outbox: b, Connector: protos.NewPlatformConnectorClient(conn), Clock: clock.RealClock{},
		Log: slog.New(slog.DiscardHandler), Metrics: report.NewMetrics(registry, "test", b, clock.RealClock{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
	return registry
}

// drained waits until the outbox is empty.
func drained(t *testing.T, b *report.Outbox) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		changed := b.Changed()
		if b.Stats().Entries == 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("outbox still holds %d entries", b.Stats().Entries)
		}
	}
}

func value(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.Metric {
				sum += number(m)
			}
		}
	}
	return sum
}

func number(m *dto.Metric) float64 { return m.GetCounter().GetValue() + m.GetGauge().GetValue() }

func texts(events []*protos.HealthEvent) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Message)
	}
	return out
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("event ", i)
	}
	return out
}

func TestPublishesInOrderAndInBatches(t *testing.T) {
	c := reporttest.Start(t)
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	appendMessages(t, b, numbered(250)...)
	r := publish(t, b, c, "")
	drained(t, b)
	if diff := cmp.Diff(numbered(250), texts(c.Events())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{100, 100, 50}, c.Batches()); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	appendMessages(t, b, "late")
	drained(t, b)
	if got := value(t, r, "test_events_published_total"); got != 251 {
		t.Errorf("published %v, want 251", got)
	}
}

// TestPublishedEventsAreCountedByStrategy: also when there are none of one.
func TestPublishedEventsAreCountedByStrategy(t *testing.T) {
	c := reporttest.Start(t)
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	appendMessages(t, b, "acts")
	observes := &protos.HealthEvent{ProcessingStrategy: protos.ProcessingStrategy_PERSIST_ONLY}
	if err := b.Write(func(tx *report.Tx) error { return tx.Append(observes) }); err != nil {
		t.Fatal(err)
	}
	r := publish(t, b, c, "")
	drained(t, b)
	want := `
# HELP test_events_published_total Events that the platform connector acknowledged, by processing strategy.
# TYPE test_events_published_total counter
test_events_published_total{strategy="PERSIST_ONLY"} 1
test_events_published_total{strategy="PROCESS"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "test_events_published_total"); err != nil {
		t.Error(err)
	}
}

func TestBatchesKeepToTheirBytes(t *testing.T) {
	c := reporttest.Start(t)
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	big := strings.Repeat("x", 400_000)
	appendMessages(t, b, big, big, big, big, big)
	publish(t, b, c, "")
	drained(t, b)
	if diff := cmp.Diff([]int{2, 2, 1}, c.Batches()); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

func TestMissingConnectorCostsNothing(t *testing.T) {
	c := reporttest.New(t)
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	r := publish(t, b, c, "")
	appendMessages(t, b, numbered(10)...)
	await(t, "a failed request", func() bool { return value(t, r, "test_publish_failures_total") > 0 })
	c.Listen(t)
	drained(t, b)
	c.Cut()
	appendMessages(t, b, "while cut")
	c.Listen(t)
	drained(t, b)
	if diff := cmp.Diff(append(numbered(10), "while cut"), texts(c.Distinct(t))); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestRetriedCodesKeepTheEvent(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal,
		codes.Unauthenticated, codes.PermissionDenied, codes.Unknown, codes.Unimplemented, codes.FailedPrecondition,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			c := reporttest.Start(t)
			b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
			left := 2
			c.Refuse(func(*protos.HealthEvents) error {
				if left--; left < 0 {
					return nil
				}
				return status.Error(code, "not now")
			})
			appendMessages(t, b, "a", "b")
			publish(t, b, c, "")
			drained(t, b)
			if diff := cmp.Diff([]string{"a", "b"}, texts(c.Events())); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if dead := b.Stats().Dead; dead != 0 {
				t.Errorf("%d dead letters", dead)
			}
		})
	}
}

func TestRefusedEventBecomesADeadLetterAndBlocksNothing(t *testing.T) {
	c := reporttest.Start(t)
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	c.Refuse(func(in *protos.HealthEvents) error {
		for _, e := range in.Events {
			if e.Message == "event 3" {
				return status.Error(codes.InvalidArgument, "event 3: no node name")
			}
		}
		return nil
	})
	appendMessages(t, b, numbered(6)...)
	r := publish(t, b, c, "")
	drained(t, b)
	want := []string{"event 0", "event 1", "event 2", "event 4", "event 5"}
	if diff := cmp.Diff(want, texts(c.Events())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	letters, err := b.DeadLetters()
	if err != nil || len(letters) != 1 || letters[0].Seq != 4 || !strings.Contains(letters[0].Reason, "no node name") {
		t.Errorf("letters %+v, error %v", letters, err)
	}
	if got := value(t, r, "test_dead_letters_total"); got != 1 {
		t.Errorf("counted %v dead letters", got)
	}
}

func TestTokenIsReadForEveryRequest(t *testing.T) {
	c := reporttest.Start(t)
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	file := filepath.Join(t.TempDir(), "token")
	appendMessages(t, b, "before the token exists")
	r := publish(t, b, c, file)
	await(t, "a failed request", func() bool { return value(t, r, "test_publish_failures_total") > 0 })
	for _, secret := range []string{"one", "two"} {
		if err := os.WriteFile(file+".new", []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		appendMessages(t, b, secret)
		drained(t, b)
	}
	if got := c.Tokens(); got[0] != "Bearer one" || got[len(got)-1] != "Bearer two" {
		t.Errorf("tokens %q", got)
	}
}

// await polls a condition that no channel reports.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waiting for %s", what)
		}
	}
}
