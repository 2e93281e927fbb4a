package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/event-exporter/internal/delivery"
	"github.com/nvidia/nvsentinel/event-exporter/internal/sender"
	"github.com/nvidia/nvsentinel/internal/crashloop"
)

// TestDelayedRecordLags: what waits for its turn at the bounded rate is neither
// delivered nor forgotten.
func TestDelayedRecordLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := history(3, 1)
		for i := range old {
			old[i].CreatedAt = time.Now().Add(-time.Hour)
		}
		w := newWorld(t, old...)
		d, loop := w.exporter(func(d *delivery.Exporter) { d.MaxLag, d.Rate = 30*time.Minute, 0.01 })
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

// passing is a loop's memory of a calm past, with dead-lettered records.
type passing map[string]bool

func (p passing) Load(context.Context) (crashloop.Past, error) { return crashloop.Past{}, nil }
func (p passing) Save(context.Context, crashloop.Past) error   { return nil }
func (p passing) MoveToDeadLetters(_ context.Context, f crashloop.Work) error {
	p[f.Record] = true
	return nil
}
func (p passing) IsDeadLetter(id string) bool { return p[id] }
func (p passing) Count() int                  { return len(p) }

// TestDeadLettersAreSkipped: a record that killed the exporter is not sent, and
// the position goes on behind it; what waits in a partition is what a try looks at.
func TestDeadLettersAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, history(20, 3)...)
		w.dead["r0007"] = "set aside"
		w.deadLettered["r0007"] = true
		d, loop := w.exporter(nil)
		w.answer = func([]string) sender.Result { return status(503) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error)
		go func() { done <- loop.Run(ctx) }()
		<-time.After(time.Minute)
		var waiting []string
		for n := range 4 {
			for _, r := range loop.Waiting(fmt.Sprintf("partition-%02d", n)) {
				d.Try(ctx, r)
				waiting = append(waiting, r.ID)
			}
		}
		if slices.Contains(waiting, "r0007") || len(waiting) != 19 {
			t.Errorf("%d records wait: %v", len(waiting), waiting)
		}
		w.mu.Lock()
		w.answer = func([]string) sender.Result { return status(200) }
		w.mu.Unlock()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(w.taken) != 19 || w.taken["r0007"] > 0 || w.committed != 20 {
			t.Errorf("%d taken, the fatal one %d times, position %d of 20", len(w.taken), w.taken["r0007"], w.committed)
		}
	})
}
