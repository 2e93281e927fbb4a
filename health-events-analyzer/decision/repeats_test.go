package decision_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// counting is a record of XID 74 that stands for the events of the bursts.
func counting(n *node, name string, bursts ...record.Burst) record.Record {
	last := bursts[len(bursts)-1].To
	r := n.parse(fmt.Sprintf("%s %s 74 gpu=G1 bits=REG0:8", name, last.Sub(start)))
	r.Event = record.Repeated(r.Event, bursts)
	return r
}

func at(d time.Duration, n int) record.Burst {
	return record.Burst{From: start.Add(d), To: start.Add(d), Count: n}
}

// TestARecordCountsAsItsEvents: two are needed, and the one record has them; they
// end with it.
func TestARecordCountsAsItsEvents(t *testing.T) {
	n := newNode(t, rule.Default())
	r := counting(n, "a", at(time.Hour, 1), at(time.Hour+20*time.Second, 1))
	if from, ok := decision.NewFact(r).Matters(); !ok || !from.Equal(start.Add(time.Hour)) {
		t.Errorf("it is judged from %v on", from)
	}
	got := strings.Join(n.take(r), "\n")
	if want := "RepeatedXID74Reg0HardwareIssue (CONTACT_SUPPORT) gpu=GPU_UUID:G1 from a"; got != want {
		t.Errorf("two events in one record: %q, want %q", got, want)
	}
	got = strings.Join(n.take(n.parse("b 1h30m - gpu=G1 healthy")), "\n")
	if want := "RepeatedXID74Reg0HardwareIssue of gpu=GPU_UUID:G1 is over"; got != want {
		t.Errorf("after their recovery: %q, want %q", got, want)
	}
	if n.window.Prune(start.Add(400 * time.Hour)); n.window.Len() != 0 {
		t.Errorf("%d events are kept for ever", n.window.Len())
	}
}

// TestTheEventsOfARecordAreSpread: from the first to the last time of each burst; the
// very last one is the record's own.
func TestTheEventsOfARecordAreSpread(t *testing.T) {
	n := newNode(t, parsed(t, oneNode+"count = 6\n"))
	burst := func(from, to time.Duration) record.Burst {
		return record.Burst{From: start.Add(from * time.Second), To: start.Add(to * time.Second), Count: 3}
	}
	n.window.Add(decision.NewFact(counting(n, "a", burst(0, 20), burst(60, 80))))
	var got []string
	for _, f := range n.window.Evaluate(time.Time{}, start) {
		for _, s := range f.Sources {
			got = append(got, s.At.Sub(start).String())
		}
	}
	if want := "0s 10s 20s 1m0s 1m10s 1m20s"; strings.Join(got, " ") != want {
		t.Errorf("the events of two bursts happened at %v, want %s", got, want)
	}
}

// TestObservedRepeatsCountNothing: such a record is for the record only.
func TestObservedRepeatsCountNothing(t *testing.T) {
	n := newNode(t, rule.Default())
	r := counting(n, "a", at(time.Hour, 5))
	r.Event.ProcessingStrategy = record.PersistOnly
	if got := n.take(r); len(got) > 0 || n.window.Len() != 0 {
		t.Errorf("derived %v, of %d events", got, n.window.Len())
	}
}

// TestACountIsBounded: a record becomes a bounded number of events, whatever it states.
func TestACountIsBounded(t *testing.T) {
	n := newNode(t, rule.Default())
	var bursts []record.Burst
	for i := range record.MaxBursts {
		bursts = append(bursts, at(time.Duration(i)*time.Second, 1<<20))
	}
	n.window.Add(decision.NewFact(counting(n, "a", bursts...)))
	if most := record.MaxBursts * 5; n.window.Len() > most {
		t.Errorf("one record became %d events, at most %d", n.window.Len(), most)
	}
}
