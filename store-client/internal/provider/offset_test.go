package provider

import (
	"errors"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// count is a position of a store whose places are numbers.
type count struct {
	Header
	N     int64 `json:"n"`
	Again bool  `json:"g,omitempty"`
}

func (c count) Valid() bool         { return c.N >= 0 }
func (c count) Beyond(d count) bool { return c.N > d.N }
func (c count) Rescanning() bool    { return c.Again }

// at is the place n of a reading of the server "here".
func at(reading, n int64) count {
	return count{Header: BeginHeader("here", Inserts, reading-1), N: n}
}

func TestAhead(t *testing.T) {
	for name, tc := range map[string]struct {
		p, q count
		want bool
	}{
		"same":                                 {at(1, 5), at(1, 5), false},
		"later place":                          {at(1, 6), at(1, 5), true},
		"earlier place":                        {at(1, 4), at(1, 5), false},
		"a rescan begins before the old place": {at(2, 0), at(1, 5), true},
		"left over from before the rescan":     {at(1, 6), at(2, 0), false},
		"an earlier rescan":                    {at(2, 9), at(3, 1), false},
		"of a version that numbered none":      {at(0, 9), at(1, 1), false},
	} {
		if got := Ahead(tc.p, tc.q); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if tc.want && Ahead(tc.q, tc.p) {
			t.Errorf("%s: each is ahead of the other", name)
		}
	}
}

func TestEvaluatePosition(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want Loss
	}{
		"good":              {PositionText(at(3, 9)), NotLost},
		"empty":             {"", Unreadable},
		"garbage":           {"\x01", Unreadable},
		"no object":         {"null", Unreadable},
		"no server":         {`{"v":1}`, Unreadable},
		"another format":    {`{"v":2,"s":"here","k":"inserts"}`, Unreadable},
		"no place":          {`{"v":1,"s":"here","k":"inserts","n":-1}`, Unreadable},
		"another server":    {`{"v":1,"s":"there","k":"inserts","n":99}`, OtherServer},
		"the other kind":    {`{"v":1,"s":"here","k":"changes","n":99}`, OtherKind},
		"behind the end":    {PositionText(at(3, 11)), BeyondEnd},
		"at the end":        {PositionText(at(3, 10)), NotLost},
		"without a reading": {`{"v":1,"s":"here","k":"inserts","n":9}`, NotLost},
	} {
		p, got := EvaluatePosition(Line{Stored: true, Text: tc.text}, "here", Inserts, func(c count) bool { return c.N > 10 })
		if got != tc.want || got == NotLost && p.N == 0 {
			t.Errorf("%s: %q of %+v, want %q", name, got, p, tc.want)
		}
	}
	if _, err := ParsePosition[count]("x"); !errors.Is(err, ErrPosition) {
		t.Errorf("garbage is %v", err)
	}
}

func TestRescanFrom(t *testing.T) {
	mark := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	if since, ok := RescanFrom(&mark, 7).SinceTime(); !ok || !since.Equal(mark.Add(-Margin)) {
		t.Errorf("with a watermark the rescan begins at %v, %v", since, ok)
	}
	r := RescanFrom(nil, 7)
	if since, ok := r.SinceTime(); ok || r.Until != 7 {
		t.Errorf("without a watermark %+v begins at %v", r, since)
	}
}

func TestKindOf(t *testing.T) {
	if KindOf(record.AllHealthEventInserts()) != Inserts || KindOf(record.NodeQuarantineStatus()) != Changes {
		t.Error("a feed follows the other kind of events")
	}
}
