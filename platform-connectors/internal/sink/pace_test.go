package sink

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

// busy is a queue in which one entry appears every 10 ms from the start on.
type busy struct {
	*queue
	start time.Time
}

func (b busy) there() uint64 {
	return min(uint64(max(0, time.Since(b.start)+10*time.Millisecond)/(10*time.Millisecond)), uint64(len(b.entries)))
}

func (b busy) Read(after uint64, _ int) ([]spool.Entry, uint64, error) {
	upTo := max(after, b.there())
	return b.entries[after:upTo], upTo, nil
}

func (b busy) Wait(ctx context.Context, after uint64) error {
	for b.there() <= after {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func TestBusySpoolCostsTenWritesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{epoch: "one"}
		f := newFold(t, filepath.Join(t.TempDir(), "faults.json"), q, &history{})
		run(t, f, time.Minute) // the first start's rebuilding
		for i := range 1000 {
			q.add(xid(fmt.Sprint(i % 8)))
		}
		b := busy{q, time.Now().Add(time.Second)}
		f.Spool = b
		var writes []time.Duration
		f.OnChange(func() { writes = append(writes, time.Since(b.start)) })
		run(t, f, time.Minute)
		if q.confirmed != 1000 || len(f.View().Conditions) != 1 {
			t.Errorf("confirmed %d of 1000 events, conditions %v", q.confirmed, f.View().Conditions)
		}
		if len(writes) > 102 || writes[0] > 10*time.Millisecond {
			t.Errorf("%d writes in 10 s, the first after %v; want ten a second, the first at once", len(writes), writes[0])
		}
	})
}
