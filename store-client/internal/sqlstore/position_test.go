package sqlstore

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

func TestAhead(t *testing.T) {
	at := func(tx, seq int64) position { return position{Server: "s", Tx: tx, Seq: seq} }
	again := func(tx, seq, until int64) position {
		p := at(tx, seq)
		p.Rescan = &rescan{Until: until}
		return p
	}
	seen := func(tx int64, s *Snapshot) position {
		p := at(tx, math.MaxInt64)
		p.Seen = s
		return p
	}
	for name, tc := range map[string]struct {
		p, q position
		want bool
	}{
		"seen the same":                    {seen(5, &Snapshot{8, []int64{6}}), seen(5, &Snapshot{8, []int64{6}}), false},
		"seen more numbers":                {seen(5, &Snapshot{9, []int64{6, 8}}), seen(5, &Snapshot{8, []int64{6}}), true},
		"seen one end":                     {seen(5, &Snapshot{9, []int64{6}}), seen(5, &Snapshot{9, []int64{6, 8}}), true},
		"seen something":                   {seen(5, &Snapshot{8, []int64{6}}), seen(5, nil), true},
		"the horizon moved on":             {seen(6, nil), seen(5, &Snapshot{9, []int64{6}}), true},
		"same":                             {at(5, 5), at(5, 5), false},
		"later row":                        {at(5, 6), at(5, 5), true},
		"earlier row":                      {at(5, 4), at(5, 5), false},
		"later transaction":                {at(6, 1), at(5, 5), true},
		"earlier transaction":              {at(4, 9), at(5, 5), false},
		"rescan begins before old":         {again(0, 0, 6), at(5, 5), false},
		"rescan begun later":               {again(0, 0, 7), at(5, 5), true},
		"in a rescan":                      {again(3, 1, 7), again(2, 1, 7), true},
		"back in a rescan":                 {again(2, 1, 7), again(3, 1, 7), false},
		"an earlier rescan":                {again(3, 1, 6), again(0, 0, 7), false},
		"after the rescan":                 {at(7, 1), again(6, 5, 7), true},
		"at the end of the rescan":         {at(6, math.MaxInt64), again(6, 5, 7), true},
		"left over from before the rescan": {at(5, 5), again(0, 0, 7), false},
	} {
		if got := tc.p.ahead(tc.q); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if tc.want && tc.q.ahead(tc.p) {
			t.Errorf("%s: each is ahead of the other", name)
		}
	}
}

func TestRescanEndsAtItsHead(t *testing.T) {
	mark := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	head := Head{Server: "s", Tx: 10, At: mark}
	p := again(byInsert, head, &mark)
	if since := time.UnixMicro(*p.Rescan.Since); !since.Equal(mark.Add(-rescanMargin)) {
		t.Errorf("the rescan begins at %v", since)
	}
	if within := p.at(9, 5, mark); within.Rescan == nil || within.covers(head) {
		t.Errorf("the rescan ended before its head: %v", within)
	}
	for _, end := range []position{p.at(10, 1, mark), p.through(head)} {
		if end.Rescan != nil || !end.covers(head) {
			t.Errorf("the rescan goes on after its head: %v", end)
		}
	}
	if lost := again(byInsert, head, nil); lost.Rescan.Since != nil {
		t.Error("a rescan without a mark has a beginning")
	}
}

func TestPositionText(t *testing.T) {
	since := int64(7)
	p := position{Version: positionVersion, Server: "s", Kind: byChange, Tx: 1 << 40, Seq: math.MaxInt64, Mark: 9, Rescan: &rescan{Until: 1 << 41, Since: &since}}
	got, err := parsePosition(p.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "{}", "5", "null", `{"v":1}`, `{"v":2,"s":"s"}`, `{"v":1,"s":"s","t":-1}`, `{"v":1,"s":"s","t":1e99}`} {
		if _, err := parsePosition(text); !errors.Is(err, errPosition) {
			t.Errorf("%q: %v, want errPosition", text, err)
		}
	}
}

func TestLost(t *testing.T) {
	head := Head{Server: "s", Tx: 10}
	good := position{Server: "s", Kind: byInsert, Tx: 9}
	for want, p := range map[loss]position{
		notLost:     good,
		otherServer: {Server: "t", Kind: byInsert, Tx: 9},
		otherKind:   {Server: "s", Kind: byChange, Tx: 9},
		beyondEnd:   {Server: "s", Kind: byInsert, Tx: 9, Seen: &Snapshot{Next: 11}},
	} {
		if got := p.lost(byInsert, head); got != want {
			t.Errorf("%v: %q, want %q", p, got, want)
		}
	}
}

func TestPositionsAboveTheHorizon(t *testing.T) {
	shot := &Snapshot{Next: 15, Running: []int64{10, 13}}
	head := Head{Server: "s", Tx: 10, Shot: shot}
	p := position{Version: positionVersion, Server: "s", Kind: byInsert, Tx: 9, Seq: math.MaxInt64, Seen: &Snapshot{Next: 12, Running: []int64{10}}}
	first, second, end := p.beyond(head, 1), p.beyond(head, 2), p.through(head)
	if first == second || first.ahead(p) || second.ahead(first) || !end.ahead(second) {
		t.Errorf("rows above the horizon move the position: %v, %v, %v", first, second, end)
	}
	if p.covers(head) || second.covers(head) || !end.covers(head) {
		t.Error("the head is covered before it is read to its end, or not then")
	}
	moved := Head{Server: "s", Tx: 13, Shot: &Snapshot{Next: 15, Running: []int64{13}}}
	if end.covers(moved) || !end.through(moved).ahead(end) {
		t.Error("the end of the oldest transaction goes unnoticed")
	}
	if last := (Head{Server: "s", Tx: 15}); end.through(last).Seen != nil || !end.through(last).ahead(end) {
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
