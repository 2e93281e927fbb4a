package check

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

func TestPollHistory(t *testing.T) {
	for _, c := range []struct {
		seen  string // oldest first
		share Share
		want  bool
	}{
		{"", Share{1, 1}, false}, {"y", Share{1, 1}, true}, {"yn", Share{1, 2}, false}, {"yny", Share{2, 3}, true},
		{"ynny", Share{2, 3}, false}, {"yy", Share{3, 3}, false}, {"yyy", Share{3, 3}, true},
	} {
		var l pollHistory
		for _, x := range c.seen {
			l = l.add(x == 'y')
		}
		if l.reach(c.share) != c.want {
			t.Errorf("%q reaches %v: %t", c.seen, c.share, !c.want)
		}
	}
	var l pollHistory
	for range maxPolls {
		l = l.add(true)
	}
	if !l.reach(Share{maxPolls, maxPolls}) {
		t.Error("the longest share is not reached")
	}
}

func TestShares(t *testing.T) {
	for _, s := range []Share{{0, 1}, {2, 1}, {1, maxPolls + 1}, {-1, 3}} {
		if s.Validate() == nil {
			t.Errorf("%v was accepted", s)
		}
	}
	for _, s := range []Share{{1, 1}, {1, 2}, {2, 2}, {1, maxPolls}, {maxPolls, maxPolls}} {
		if err := s.Validate(); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// TestRememberedXIDsAreBounded: the oldest are forgotten, and what is older than
// DCGM keeps.
func TestRememberedXIDsAreBounded(t *testing.T) {
	s, err := DecodeState(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(maxReportedXIDs + 10) {
		s.Seen[occurrence{"GPU-0", "13"}.seenKey(i)] = i
	}
	s.forget(time.UnixMicro(2))
	if _, ok := s.Seen[occurrence{"GPU-0", "13"}.seenKey(9)]; len(s.Seen) != maxReportedXIDs || ok {
		t.Errorf("%d are remembered, the tenth: %t", len(s.Seen), ok)
	}
	s.forget(time.UnixMicro(maxReportedXIDs + 9))
	if len(s.Seen) != 1 {
		t.Errorf("%d are remembered, want the newest", len(s.Seen))
	}
}

func TestALinkIsTakenApart(t *testing.T) {
	for _, gpu := range []uint{0, 7, 255} {
		parent, index := link(reading.Entity{Kind: reading.GPU, ID: gpu}, 17).Link()
		if parent.Kind != reading.GPU || parent.ID != gpu || index != 17 {
			t.Errorf("%v, link %d, want GPU %d", parent, index, gpu)
		}
	}
}

func TestAStateThatIsDamagedIsNoState(t *testing.T) {
	if _, err := DecodeState([]byte("{")); err == nil {
		t.Error("half a state was decoded")
	}
}

// TestAStateThatCannotBeWritten: a time that JSON does not have is an error, and nothing is
// written then.
func TestAStateThatCannotBeWritten(t *testing.T) {
	s := State{Faults: map[string]Fault{"k": {Since: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}}
	if data, err := s.Encode(); err == nil || data != nil {
		t.Errorf("%q, %v", data, err)
	}
}

// TestIDsOfAFault: the events that reported one that has no end of its own are remembered, by
// which a person may clear it: the first and the newest, no more than the bound. What DCGM
// shows in each look has an end, and what is not open has no events.
func TestIDsOfAFault(t *testing.T) {
	for named, want := range map[int][]string{
		0: nil, 1: {"0"}, maxIDs - 1: {"0", "1", strconv.Itoa(maxIDs - 2)}, maxIDs: {"0", "1", strconv.Itoa(maxIDs - 1)},
		maxIDs + 1: {"0", "2", strconv.Itoa(maxIDs)}, maxIDs + 2: {"0", "3", strconv.Itoa(maxIDs + 1)},
	} {
		s := State{Faults: map[string]Fault{"xid": {Edge: true}, "shown": {}}}
		for i := range named {
			s.Name("xid", strconv.Itoa(i))
			s.Name("shown", strconv.Itoa(i))
			s.Name("closed", strconv.Itoa(i))
		}
		ids := s.Faults["xid"].IDs
		got := ids
		if len(ids) > 3 {
			got = []string{ids[0], ids[1], ids[len(ids)-1]}
		}
		if !slices.Equal(got, want) || len(ids) != min(named, maxIDs) {
			t.Errorf("%d events: %q are remembered, want the first, second and last to be %q", named, ids, want)
		}
		if _, open := s.Faults["closed"]; open || s.Faults["shown"].IDs != nil {
			t.Errorf("%d events: %v", named, s.Faults)
		}
	}
}
