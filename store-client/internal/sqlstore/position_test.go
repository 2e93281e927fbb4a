package sqlstore

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

func TestBeyond(t *testing.T) {
	at := func(tx, seq int64) position { return position{Tx: tx, Seq: seq} }
	seen := func(tx int64, s *Snapshot) position { return position{Tx: tx, Seq: math.MaxInt64, Seen: s} }
	for name, tc := range map[string]struct {
		p, q position
		want bool
	}{
		"seen the same":        {seen(5, &Snapshot{8, []int64{6}}), seen(5, &Snapshot{8, []int64{6}}), false},
		"seen more numbers":    {seen(5, &Snapshot{9, []int64{6, 8}}), seen(5, &Snapshot{8, []int64{6}}), true},
		"seen one end":         {seen(5, &Snapshot{9, []int64{6}}), seen(5, &Snapshot{9, []int64{6, 8}}), true},
		"seen something":       {seen(5, &Snapshot{8, []int64{6}}), seen(5, nil), true},
		"the horizon moved on": {seen(6, nil), seen(5, &Snapshot{9, []int64{6}}), true},
		"same":                 {at(5, 5), at(5, 5), false},
		"later row":            {at(5, 6), at(5, 5), true},
		"earlier row":          {at(5, 4), at(5, 5), false},
		"later transaction":    {at(6, 1), at(5, 5), true},
		"earlier transaction":  {at(4, 9), at(5, 5), false},
	} {
		if got := tc.p.Beyond(tc.q); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if tc.want && tc.q.Beyond(tc.p) {
			t.Errorf("%s: each is beyond the other", name)
		}
	}
}

func TestRescanEndsAtItsHead(t *testing.T) {
	mark := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	head := Head{Server: "s", Tx: 10, At: mark}
	p := rescan(&mark, head, provider.Inserts, 2)
	if p.Reading != 3 || p.Tx != 0 || p.Rescan.Until != 10 {
		t.Errorf("the rescan begins at %+v", p)
	}
	if within := p.at(9, 5, mark); !within.Rescanning() || within.covers(head) {
		t.Errorf("the rescan ended before its head: %v", within)
	}
	for _, end := range []position{p.at(10, 1, mark), p.through(head)} {
		if end.Rescanning() || !end.covers(head) || end.Reading != 3 {
			t.Errorf("the rescan goes on after its head: %v", end)
		}
	}
}

// TestStanding: where a consumer goes on, and in which reading.
func TestStanding(t *testing.T) {
	mark := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	head := Head{Server: "s", Tx: 10}
	header := func(reading int64) provider.Header { return provider.BeginHeader("s", provider.Inserts, reading-1) }
	kept := position{Header: header(4), Tx: 9, Seq: 3}
	for name, tc := range map[string]struct {
		line   provider.Line
		before int64
		want   position
		why    provider.Loss
	}{
		"nothing stored":                {provider.Line{}, 0, position{Header: header(1)}, provider.NotLost},
		"the line is gone meanwhile":    {provider.Line{}, 6, position{Header: header(7)}, provider.NotLost},
		"a position":                    {provider.Line{Stored: true, Text: provider.PositionText(kept), Mark: &mark}, 6, kept, provider.NotLost},
		"of a version without readings": {provider.Line{Stored: true, Text: `{"v":1,"s":"s","k":"inserts","t":9,"n":3}`}, 0, position{Header: header(0), Tx: 9, Seq: 3}, provider.NotLost},
		"garbage":                       {provider.Line{Stored: true, Text: "x", Mark: &mark}, 6, rescan(&mark, head, provider.Inserts, 6), provider.Unreadable},
		"lost in a later reading":       {provider.Line{Stored: true, Text: provider.PositionText(position{Header: header(8), Tx: 10})}, 6, rescan(nil, head, provider.Inserts, 8), provider.BeyondEnd},
	} {
		got, why := standing(tc.line, head, provider.Inserts, tc.before)
		if diff := cmp.Diff(tc.want, got); diff != "" || why != tc.why {
			t.Errorf("%s: lost %q, want %q (-want +got):\n%s", name, why, tc.why, diff)
		}
	}
}

func TestBehindTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		head Head
		p    position
		want bool
	}{
		"below":                          {Head{Tx: 10}, position{Tx: 9}, false},
		"at the end":                     {Head{Tx: 10}, position{Tx: 10}, true},
		"a rescan of more than there is": {Head{Tx: 10}, position{Rescan: &provider.Rescan{Until: 11}}, true},
		"a rescan of all there is":       {Head{Tx: 10}, position{Rescan: &provider.Rescan{Until: 10}}, false},
		"seen more than there is":        {Head{Tx: 10}, position{Tx: 9, Seen: &Snapshot{Next: 11}}, true},
		"seen what there is":             {Head{Tx: 10, Shot: &Snapshot{Next: 11}}, position{Tx: 9, Seen: &Snapshot{Next: 11}}, false},
	} {
		if got := tc.head.behind(tc.p); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestPositionText(t *testing.T) {
	since := int64(7)
	header := provider.BeginHeader("s", provider.Changes, 1)
	header.Mark = 9
	p := position{Header: header, Tx: 1 << 40, Seq: math.MaxInt64, Rescan: &provider.Rescan{Until: 1 << 41, Since: &since}}
	got, err := provider.ParsePosition[position](provider.PositionText(p))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for _, text := range []string{`{"v":1,"s":"s","t":-1}`, `{"v":1,"s":"s","n":-1}`, `{"v":1,"s":"s","t":1e99}`} {
		if p, err := provider.ParsePosition[position](text); err == nil {
			t.Errorf("%q is read as %+v", text, p)
		}
	}
}

func TestPositionsAboveTheHorizon(t *testing.T) {
	shot := &Snapshot{Next: 15, Running: []int64{10, 13}}
	head := Head{Server: "s", Tx: 10, Shot: shot}
	p := position{Tx: 9, Seq: math.MaxInt64, Seen: &Snapshot{Next: 12, Running: []int64{10}}}
	first, second, end := p.beyond(head, 1), p.beyond(head, 2), p.through(head)
	if first == second || first.Beyond(p) || second.Beyond(first) || !end.Beyond(second) {
		t.Errorf("rows above the horizon move the position: %v, %v, %v", first, second, end)
	}
	if p.covers(head) || second.covers(head) || !end.covers(head) {
		t.Error("the head is covered before it is read to its end, or not then")
	}
	moved := Head{Server: "s", Tx: 13, Shot: &Snapshot{Next: 15, Running: []int64{13}}}
	if end.covers(moved) || !end.through(moved).Beyond(end) {
		t.Error("the end of the oldest transaction goes unnoticed")
	}
	if last := (Head{Server: "s", Tx: 15}); end.through(last).Seen != nil || !end.through(last).Beyond(end) {
		t.Error("what was seen is kept although nothing is under way")
	}
}

func TestSortableSeq(t *testing.T) {
	order := []uint64{0, 1, 9, 10, 1<<63 - 1, 1 << 63, math.MaxUint64}
	for i := range order[1:] {
		if a, b := provider.SortableSeq(order[i]), provider.SortableSeq(order[i+1]); a >= b || len(a) != 20 {
			t.Errorf("%q does not come before %q", a, b)
		}
	}
}
