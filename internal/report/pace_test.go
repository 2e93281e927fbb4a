package report_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/report"
)

// deaf is a connector that never answers and notes when it was asked.
type deaf struct {
	protos.PlatformConnectorClient
	requestTimes, left []time.Time
}

func (d *deaf) HealthEventOccurredV2(ctx context.Context, _ *protos.HealthEvents, _ ...grpc.CallOption) (*protos.HealthEventResults, error) {
	d.requestTimes = append(d.requestTimes, time.Now())
	<-ctx.Done()
	d.left = append(d.left, time.Now())
	return nil, status.FromContextError(ctx.Err()).Err()
}

func TestUnresponsiveConnectorIsRetriedAtABoundedPace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		b := open(t, path, report.Options{})
		appendMessages(t, b, "a")
		d := &deaf{}
		p := &report.Publisher{
			Name: "test", Outbox: b, Connector: d, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
			Metrics: report.NewMetrics(prometheus.NewRegistry(), "test", b, clock.RealClock{}),
		}
		if ok, _ := p.Ready(); !ok {
			t.Error("not ready before the first request")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if ok, why := p.Ready(); ok || why == "" {
			t.Errorf("ready %t, %q after an hour without an answer", ok, why)
		}
		if len(d.requestTimes) < 100 {
			t.Errorf("asked %d times in an hour", len(d.requestTimes))
		}
		for i := range len(d.left) - 1 {
			if took := d.left[i].Sub(d.requestTimes[i]); took != report.Deadline {
				t.Errorf("request %d was left after %s", i, took)
			}
			if pause := d.requestTimes[i+1].Sub(d.left[i]); pause <= 0 || pause > 1500*time.Millisecond {
				t.Errorf("pause %d was %s", i, pause)
			}
		}
	})
}
