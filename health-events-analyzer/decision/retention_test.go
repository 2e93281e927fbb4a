package decision_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// minutes are faults of one GPU of the node n1, minute by minute.
func minutes(w *decision.Window, from, n int) {
	for i := from; i < from+n; i++ {
		w.Add(ev{at: i, node: "n1", code: "79", gpu: "A"}.fact(i))
	}
}

// TestTrim: a window that is full is left as it is; with one event more, a tenth is freed.
func TestTrim(t *testing.T) {
	for _, tt := range []struct {
		events, left int
		trimmed      bool
	}{
		{9, 9, false}, {10, 10, false}, {11, 9, true}, {12, 9, true}, {30, 9, true},
	} {
		w := decision.NewClusterWindow(parsed(t, linkRule))
		minutes(w, 0, tt.events)
		if trimmed := w.Trim(10); trimmed != tt.trimmed || w.Len() != tt.left {
			t.Errorf("of %d events, 10 at most, %d are left: %v", tt.events, w.Len(), trimmed)
		}
		for i := range tt.events { // the newest are those that stay
			if kept := w.Concerns(testEvent{"c", "CPU", "FanCheck", "n", false}.fact(fmt.Sprint("e", i), i)); kept != (i >= tt.events-tt.left) {
				t.Errorf("of %d events, number %d is kept: %v", tt.events, i, kept)
			}
		}
	}
}

// open makes a window of a fault of the cluster that is open, the oldest of 20
// events.
func open(t *testing.T) *decision.Window {
	w := decision.NewClusterWindow(parsed(t, threeNodes))
	e := derive(t, threeNodes, "n1", "n2", "n3")
	for i, node := range []string{"n1", "n2", "n3"} {
		w.Add(ev{at: i, node: node, code: "79", gpu: "A"}.fact(i))
	}
	w.Add(decision.NewFact(record.Record{ID: e.ID, Event: e}))
	for i := 10; i < 26; i++ {
		w.Add(ev{at: i, node: "n4", code: "79", gpu: "A"}.fact(i))
	}
	return w
}

// TestAnOpenFaultAndItsSourcesStay, however old or many they are, so that it ends
// when they do.
func TestAnOpenFaultAndItsSourcesStay(t *testing.T) {
	for name, lose := range map[string]func(*decision.Window){
		"trimmed": func(w *decision.Window) { w.Trim(4) },
		"pruned":  func(w *decision.Window) { w.Prune(start.Add(1000 * time.Hour)) },
	} {
		w := open(t)
		if lose(w); w.Len() != 4 {
			t.Errorf("%s: %d events are left, want a fault and its three sources", name, w.Len())
		}
		if unknown := w.Unknown(); len(unknown) > 0 || len(w.Clearings()) > 0 {
			t.Errorf("%s: the sources %v are unknown, %d faults are over", name, unknown, len(w.Clearings()))
		}
		for i, node := range []string{"n1", "n2", "n3"} {
			w.Add(ev{at: 30 + i, node: node, gpu: "A", healthy: true}.fact(30 + i))
		}
		if n := len(w.Clearings()); n != 1 {
			t.Errorf("%s: %d faults are over when all its sources are, want 1", name, n)
		}
	}
}

// TestPrune: an event is kept an hour longer than the longest window of the rules
// that count it.
func TestPrune(t *testing.T) {
	const rules = `
[[rules]]
name = "Short"
action = "NONE"
clear = "manual"
window = "2h"
[rules.when]
codes = ["79"]
[[rules]]
name = "Long"
action = "NONE"
clear = "manual"
window = "5h"
[rules.when]
codes = ["31"]
`
	for _, tt := range []struct {
		code string
		age  time.Duration
		kept bool
	}{
		{"79", 3 * time.Hour, true}, {"79", 3*time.Hour + 1, false},
		{"31", 6 * time.Hour, true}, {"31", 6*time.Hour + 1, false},
		{"48", time.Hour, true}, {"48", time.Hour + 1, false},
	} {
		w := decision.NewWindow(parsed(t, rules))
		w.Add(ev{node: "n1", code: tt.code, gpu: "A"}.fact(0))
		if w.Prune(start.Add(tt.age)); (w.Len() == 1) != tt.kept {
			t.Errorf("%s is kept for %s: %v", tt.code, tt.age, w.Len() == 1)
		}
	}
}

// TestPruningIsDoneEverySixMinutes: it looks at all events. A clock that was set
// back does not put it off.
func TestPruningIsDoneEverySixMinutes(t *testing.T) {
	const late = 100 * time.Hour
	for again, pruned := range map[time.Duration]bool{-1: true, 0: false, 1: false, 6*time.Minute - 1: false, 6 * time.Minute: true} {
		w := decision.NewWindow(parsed(t, oneNode))
		w.Prune(start.Add(late))
		minutes(w, 0, 1)
		if w.Prune(start.Add(late + again)); (w.Len() == 0) != pruned {
			t.Errorf("%s later it is pruned again: %v", again, w.Len() == 0)
		}
	}
}

// TestRemainingEventsAreRemembered: what was not dropped is not taken for new when it is
// delivered again, and what was dropped is.
func TestRemainingEventsAreRemembered(t *testing.T) {
	w := decision.NewWindow(parsed(t, oneNode))
	minutes(w, 0, 5)
	w.Prune(start.Add(3*time.Hour + 2*time.Minute)) // drops the first two
	if w.Len() != 3 {
		t.Fatalf("%d events are left", w.Len())
	}
	minutes(w, 2, 3)
	if w.Len() != 3 {
		t.Errorf("with three that are known there are %d", w.Len())
	}
	minutes(w, 0, 2)
	if w.Len() != 5 {
		t.Errorf("with two that were dropped there are %d", w.Len())
	}
}

// TestAnUnknownSourceIsNotOver: a source counts as over only after a lookup has found it in
// no store.
func TestAnUnknownSourceIsNotOver(t *testing.T) {
	e := derive(t, threeNodes, "n1", "n2", "n3")
	w := decision.NewClusterWindow([]rule.Rule(nil))
	w.Add(decision.NewFact(record.Record{ID: e.ID, Event: e}))
	for _, id := range w.Unknown() {
		if n := len(w.Clearings()); n != 0 {
			t.Errorf("%d faults are over before %s is looked up", n, id)
		}
		w.Expire(id)
	}
	if n := len(w.Clearings()); n != 1 {
		t.Errorf("%d faults are over when no source is left", n)
	}
}
