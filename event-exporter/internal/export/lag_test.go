package export_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/event-exporter/internal/export"
)

// TestAHeldRecordLags: what waits for its turn at the bounded rate is neither
// delivered nor forgotten.
func TestAHeldRecordLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := history(3, 1)
		for i := range old {
			old[i].CreatedAt = time.Now().Add(-time.Hour)
		}
		w := newWorld(t, old...)
		d, loop, _ := w.desk(func(d *export.Desk) { d.MaxLag, d.Rate = 30*time.Minute, 0.01 })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- loop.Run(ctx) }()
		<-time.After(time.Minute)
		if ok, detail := d.KeepsUp(); ok || !strings.Contains(detail, "1h1m0s old") {
			t.Errorf("one of three sent, one every 100 s: ready %v, %s", ok, detail)
		}
		<-time.After(5 * time.Minute)
		if ok, detail := d.KeepsUp(); !ok {
			t.Errorf("all sent: not ready, %s", detail)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
