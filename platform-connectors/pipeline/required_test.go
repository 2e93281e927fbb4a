package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// both is the rule that has the kernel's fault wait for DCGM's.
var both = ConfirmRule{
	Name: "both", When: fmt.Sprintf("event.checkName == %q", kernel), Second: fmt.Sprintf("event.checkName == %q", dcgm), Within: time.Minute,
}

// fold folds one word, and leaves what it confirms in the outbox.
func (n *node) fold(word string) (ends []WaitEnd, changed bool) {
	n.t.Helper()
	if word == "release" {
		return nil, n.set.Release()
	}
	if of, confirms := strings.CutPrefix(word, "confirmed:"); confirms {
		return n.set.Fold(Observation{Record: n.confirmation(of)})
	}
	r := n.event(word)
	as, notes := n.rules.Apply(r.Event, nil)
	return n.set.Fold(Observation{r, as, notes})
}

// confirmation is that of a word, as it comes back from the spool.
func (n *node) confirmation(word string) record.Record {
	n.t.Helper()
	e, err := Confirmed(n.event(word).Event, both, idOf("by"), "how")
	if err != nil {
		n.t.Fatal(err)
	}
	return record.Record{ID: e.ID, Event: e}
}

// state is what a set has.
func (s *Signals) state() string {
	return fmt.Sprintf("%d waits, %d seconds, %d out", len(s.Waits), len(s.Seconds), len(s.Outbox))
}

// TestRequiredRecords: Fold and Release report whether they have changed the set, because
// only then it is written to the disk.
func TestRequiredRecords(t *testing.T) {
	for name, tc := range map[string]struct {
		before, word string
		changed      bool
		state        string
	}{
		"a fault that waits":                     {"", "kA@0", true, "1 waits, 0 seconds, 0 out"},
		"a second signal":                        {"", "dA@0", true, "0 waits, 1 seconds, 0 out"},
		"a second signal of the same fault":      {"dA@0", "dA@1", true, "0 waits, 1 seconds, 0 out"},
		"a second signal, sent again":            {"dA@0", "dA@0", true, "0 waits, 1 seconds, 0 out"},
		"a second signal of another":             {"dA@0", "dB@1", true, "0 waits, 2 seconds, 0 out"},
		"what a rule does not look at":           {"kA@0", "kA@1p", false, "1 waits, 0 seconds, 0 out"},
		"the fault's recovery":                   {"kA@0", "-kA@1", true, "0 waits, 0 seconds, 0 out"},
		"its recovery for the record only":       {"kA@0", "-kA@1p", false, "1 waits, 0 seconds, 0 out"},
		"the recovery of one of two GPUs":        {"kA@0w", "-kB@1", true, "1 waits, 0 seconds, 0 out"},
		"another's recovery":                     {"kA@0 dB@1", "-kC@2", false, "1 waits, 1 seconds, 0 out"},
		"the second's recovery":                  {"kA@0 dB@1", "-dB@2", true, "1 waits, 0 seconds, 0 out"},
		"the recovery of what goes out":          {"kA@0 dB@0 dA@1 release", "-kA@2", true, "0 waits, 2 seconds, 0 out"},
		"another's than of what goes out":        {"kA@0 dA@1 release", "-kB@2", false, "0 waits, 1 seconds, 1 out"},
		"what went out":                          {"kA@0 kB@1 dA@2 dB@3", "confirmed:kA@0", true, "2 waits, 2 seconds, 1 out"},
		"what went out in the life before":       {"kA@0 kB@1 dA@2 dB@3", "confirmed:kC@0", false, "2 waits, 2 seconds, 2 out"},
		"a person, with something confirmed":     {"kA@0 kB@1 dA@2", "release", true, "1 waits, 1 seconds, 1 out"},
		"a person, with nothing confirmed":       {"kA@0", "release", false, "1 waits, 0 seconds, 0 out"},
		"a person, with nothing that is waiting": {"", "release", false, "0 waits, 0 seconds, 0 out"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, both)
			for word := range strings.FieldsSeq(tc.before) {
				n.fold(word)
			}
			if _, changed := n.fold(tc.word); changed != tc.changed || n.set.state() != tc.state {
				t.Errorf("changed %t, want %t; %s, want %s", changed, tc.changed, n.set.state(), tc.state)
			}
		})
	}
}

// TestTheRightOneGoesOut: the confirmation that is left is the other one.
func TestTheRightOneGoesOut(t *testing.T) {
	n := newNode(t, both)
	for _, word := range []string{"kA@0", "kB@1", "dA@2", "dB@3", "confirmed:kA@0"} {
		n.fold(word)
	}
	if len(n.set.Outbox) != 1 || n.set.Outbox[0].Event.Confirms() != idOf("kB@1") {
		t.Errorf("left are %+v", n.set.Outbox)
	}
}

// TestReportsAreKeptForARuleThatCounts, and for no other.
func TestReportsAreKeptForARuleThatCounts(t *testing.T) {
	counts := both
	counts.Reports = 3
	for name, tc := range map[string]struct {
		rule ConfirmRule
		want int
	}{"no number": {both, 0}, "three": {counts, 2}} {
		n := newNode(t, tc.rule)
		n.fold("kA@0")
		n.fold("kA@1")
		if got := len(n.set.Waits[0].Reports); got != tc.want {
			t.Errorf("%s: %d reports of two are kept, want %d", name, got, tc.want)
		}
	}
}

// TestAConfirmedOneIsForgottenFirst: it has gone out. Else the oldest that waits is.
func TestAConfirmedOneIsForgottenFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		confirmed string // the one of the oldest three
		ends      int
		left      string
	}{
		"none is confirmed":   {"", 1, "kB@1 kC@2"},
		"the newest of three": {"dC@2", 0, "kA@0 kB@1"},
		"one between":         {"dB@2", 0, "kA@0 kC@2"},
		"the oldest":          {"dA@2", 0, "kB@1 kC@2"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, both)
			words := []string{"kA@0", "kB@1", "kC@2"}
			if tc.confirmed != "" {
				words = append(words, tc.confirmed)
			}
			for i := range MaxWaits - 3 {
				words = append(words, fmt.Sprintf("kX%d@2", i))
			}
			for _, word := range words {
				n.fold(word)
			}
			if ends, _ := n.fold("kY@2"); len(ends) != tc.ends || len(n.set.Waits) != MaxWaits {
				t.Errorf("%d wait, and so ended: %v, want %d ends", len(n.set.Waits), ends, tc.ends)
			}
			var left []string
			for _, word := range []string{"kA@0", "kB@1", "kC@2"} {
				for _, w := range n.set.Waits {
					if w.Record.ID == idOf(word) {
						left = append(left, word)
					}
				}
			}
			if got := strings.Join(left, " "); got != tc.left {
				t.Errorf("of the oldest three %s are left, want %s", got, tc.left)
			}
		})
	}
}

// TestBytesAtTheirBound: what fills the bound is kept, a byte more makes the oldest
// go; one that is too large by itself is the newest, and stays.
func TestBytesAtTheirBound(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes []int
		left  int
	}{
		"full":          {[]int{MaxBytes - 100_000, 100_000}, 2},
		"a byte more":   {[]int{MaxBytes - 100_000 + 1, 100_000}, 1},
		"one, full":     {[]int{MaxBytes}, 1},
		"one, and more": {[]int{MaxBytes + 1}, 1},
	} {
		for _, kind := range []string{"k", "d"} {
			n := newNode(t, both)
			for i, bytes := range tc.bytes {
				r := n.event(fmt.Sprintf("%s%c@0", kind, 'A'+i))
				r.Event.Metadata[record.MetadataBootID] = "" // a second has it, and no message
				as, notes := n.rules.Apply(r.Event, nil)
				pad := bytes - size(trimmed(r).Event)
				r.Event.Metadata[record.MetadataBootID] = strings.Repeat("x", pad)
				n.set.Fold(Observation{r, as, notes})
			}
			if got := len(n.set.Waits) + len(n.set.Seconds); got != tc.left {
				t.Errorf("%s, %s: %d are left, want %d", name, kind, got, tc.left)
			}
		}
	}
}

// TestEventMemory measures an event without the names of its faults: its texts, and the
// approximate size of each list.
func TestEventMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		event record.Event
		want  int
	}{
		"nothing":         {record.Event{}, 0},
		"a message":       {record.Event{Message: "12345"}, 5},
		"entities":        {record.Event{EntitiesImpacted: []record.Entity{{EntityType: "GPU", EntityValue: "1234567"}, {EntityType: "PCI", EntityValue: "0000:3b:00"}}}, 3 + 7 + 48 + 3 + 10 + 48},
		"codes":           {record.Event{ErrorCode: []string{"79", "119"}}, 2 + 16 + 3 + 16},
		"metadata":        {record.Event{Metadata: map[string]string{"key": "12345"}}, 3 + 5 + 8},
		"and all of them": {record.Event{Message: "1", ErrorCode: []string{"79"}, Metadata: map[string]string{"k": "v"}}, 1 + 2 + 16 + 1 + 1 + 8},
	} {
		if got := size(tc.event) - 512 - 3*int(fault.Size(tc.event)); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", name, got, tc.want)
		}
	}
}

// TestAnAddressIsDomainBusAndDevice: an address is read in every notation.
func TestAnAddressIsDomainBusAndDevice(t *testing.T) {
	for written, want := range map[string]string{
		"0000:3b:00": "0:3b:00", "00000000:3B:00.0": "0:3b:00", "3b:00": "0:3b:00", "3B:00.0": "0:3b:00",
		"0001:3b:00": "1:3b:00", "10000:3b:00.0": "10000:3b:00", "3b": "0:3b",
	} {
		if got := address(written); got != want {
			t.Errorf("%s: %s, want %s", written, got, want)
		}
	}
}
