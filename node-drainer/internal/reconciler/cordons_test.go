package reconciler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// backlog is what a store lists.
type backlog struct {
	records []record.Record
	err     error
}

func (b *backlog) List(_ context.Context, q store.Query) (out []record.Record, err error) {
	for _, r := range b.records {
		if q.Selector.Matches(r) {
			out = append(out, r)
		}
	}
	return out[:min(len(out), q.Limit)], b.err
}

func fresh(clock *testingclock.FakeClock, node string) record.Record {
	r := record.Record{ID: "f-" + node, Event: record.Event{NodeName: node, ProcessingStrategy: record.Process}, CreatedAt: clock.Now()}
	return r
}

func evaluated(r record.Record) record.Record {
	r.Status = record.Status{
		NodeQuarantined: record.Quarantined, Session: r.ID, Faults: []record.Fault{{Key: "k"}},
		QuarantineVerdict: &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}},
	}
	return r
}

// TestADrainStandsBackForCordons: in a burst the first node waits until the last one is
// marked, and then no more; a node that is handled again meanwhile waits too.
func TestADrainStandsBackForCordons(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	b := &backlog{}
	for i := range 6 {
		b.records = append(b.records, fresh(clock, fmt.Sprint("n", i)))
	}
	c, notes := newCordons(b, clock), &notes{}
	for range 2 {
		if !c.standBack(t.Context(), "n0", notes) {
			t.Fatal("a drain goes on while others are not judged")
		}
	}
	all := b.records
	b.records = nil
	for _, r := range all {
		if !c.hear(evaluated(r)) {
			t.Errorf("%s counts as marked", r.ID)
		}
	}
	clock.Step(pendingReadInterval)
	c.read(t.Context())
	if free, more := c.release(); len(free) != 0 || !more {
		t.Errorf("%v go on while others are not marked", free)
	}
	for _, r := range all[3:] {
		marked := evaluated(r)
		marked.Status.QuarantineFinishTimestamp = &time.Time{}
		if c.hear(marked) {
			t.Errorf("%s counts as not marked", r.ID)
		}
	}
	if free, more := c.release(); len(free) != 1 || more {
		t.Errorf("%v go on, more %t; want n0 alone", free, more)
	}
	for _, r := range all {
		c.hear(evaluated(r))
	}
	if c.standBack(t.Context(), "n0", notes) {
		t.Error("a drain stands back twice")
	}
}

// TestADrainStandsBackForSoLong: faults that are never evaluated hold it up once.
func TestADrainStandsBackForSoLong(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	b := &backlog{}
	c := newCordons(b, clock)
	for i := range 2 * maxUnmarked {
		c.hear(evaluated(fresh(clock, fmt.Sprint("n", i))))
	}
	if len(c.evaluated) != maxUnmarked {
		t.Errorf("%d faults are remembered", len(c.evaluated))
	}
	if !c.standBack(t.Context(), "n0", &notes{}) {
		t.Error("it goes on at once")
	}
	clock.Step(10 * time.Second)
	if free, _ := c.release(); len(free) != 1 || c.size() != 0 {
		t.Errorf("after ten seconds %v go on", free)
	}
	n := &notes{}
	for i := range 5 {
		c.hear(evaluated(fresh(clock, fmt.Sprint("m", i))))
	}
	if !c.standBack(t.Context(), "n2", n) {
		t.Error("it goes on at once")
	}
	for range 2 { // asked itself, it goes on as well, and again
		clock.Step(10 * time.Second)
		if c.standBack(t.Context(), "n2", n) || c.size() != 0 {
			t.Error("it stands back although nobody has let it go for ten seconds")
		}
	}
	if b.err = errors.New("away"); c.standBack(t.Context(), "n1", &notes{}) || len(c.evaluated) != 0 {
		t.Errorf("%d old faults, and a store that is away, hold it up", len(c.evaluated))
	}
}
