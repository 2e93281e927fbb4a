package sink

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

// busy is a queue in which one entry appears every 10 ms from the start on.
type busy struct {
	*queue
	start time.Time
}

func (b busy) there() uint64 {
	return min(uint64(max(0, time.Since(b.start)+10*time.Millisecond)/(10*time.Millisecond))+1, uint64(len(b.entries)))
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
	testBusySpool(t, 1000, 0, 102)
}

// A large set is written less often: at most 4 MiB a second.
func TestBusySpoolCostsFewWritesOfALargeSet(t *testing.T) {
	testBusySpool(t, 100, 2000, 4)
}

// testBusySpool folds so many events, a hundred a second, into a set that has so
// many faults already, in at most so many writes.
func testBusySpool(t *testing.T, events, faults, most int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{epoch: "one"}
		f := newFold(t, filepath.Join(t.TempDir(), "faults.json"), q, &history{})
		large := xid("0")
		for i := range faults {
			large.EntitiesImpacted = append(large.EntitiesImpacted, record.Entity{EntityType: "GPU", EntityValue: fmt.Sprint("x", i)})
		}
		q.add(large)
		run(t, f, time.Minute) // the first start's rebuilding
		for i := range events {
			q.add(xid(fmt.Sprint(i % 8)))
		}
		b := busy{q, time.Now().Add(time.Second)}
		f.Spool = b
		var writes []time.Duration
		f.OnChange(func() { writes = append(writes, time.Since(b.start)) })
		run(t, f, time.Minute)
		if q.confirmed != uint64(events)+1 || len(f.View().Conditions) != 1 {
			t.Errorf("confirmed %d of %d events, conditions %v", q.confirmed, events+1, f.View().Conditions)
		}
		if len(writes) > most || writes[0] > 10*time.Millisecond {
			t.Errorf("%d writes of %d events, the first after %v; want at most %d, the first at once", len(writes), events, writes[0], most)
		}
	})
}
