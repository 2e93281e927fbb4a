package crashloop

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPast walks through lives: how each ended, and what the next one knows.
func TestPast(t *testing.T) {
	k, x, y := Work{Key: "k"}, Work{"k", "x"}, Work{"k", "y"}
	cases := []struct {
		name string
		// died holds what was in flight when each life ended; a life that was not
		// careful has noted nothing.
		died   []Work
		want   Past
		poison Work
	}{
		{name: "the first life", want: Past{Starts: 1}},
		{name: "after one death", died: make([]Work, 1), want: Past{Starts: 2}},
		{name: "after two", died: make([]Work, 2), want: Past{Starts: 3}},
		{name: "a key", died: []Work{{}, {}, k}, want: Past{Starts: 4, Suspect: k, Crashes: 1, KeyCrashes: 1}},
		{name: "a key for ever", died: []Work{{}, {}, k, k, k, k}, want: Past{Starts: 7, Suspect: k, Crashes: 4, KeyCrashes: 4}},
		{name: "its record once", died: []Work{{}, {}, k, x}, want: Past{Starts: 5, Suspect: x, Crashes: 1, KeyCrashes: 2}},
		{name: "its record twice", died: []Work{{}, {}, k, x, x}, want: Past{Starts: 6, Suspect: x, Crashes: 2, KeyCrashes: 3}},
		{name: "its record three times", died: []Work{{}, {}, k, x, x, x}, want: Past{Starts: 7}, poison: x},
		{name: "two records of a key", died: []Work{{}, {}, k, x, y}, want: Past{Starts: 6, Suspect: y, Crashes: 1, KeyCrashes: 3}},
		{name: "the record, the key, the record", died: []Work{{}, {}, k, x, k, x}, want: Past{Starts: 7, Suspect: x, Crashes: 1, KeyCrashes: 4}},
		{
			name: "something else between", died: []Work{{}, {}, k, x, {}, x},
			want: Past{Starts: 7, Suspect: x, Crashes: 1, KeyCrashes: 1, Deep: true},
		},
		{name: "another key between", died: []Work{{}, {}, k, x, {Key: "l"}, x}, want: Past{Starts: 7, Suspect: x, Crashes: 1, KeyCrashes: 1}},
		{name: "nothing in flight", died: make([]Work, 3), want: Past{Starts: 4, Deep: true}},
		{
			name: "a delivery three times", died: []Work{{}, {}, {}, {Record: "x"}, {Record: "x"}, {Record: "x"}},
			want: Past{Starts: 7, Deep: true}, poison: Work{Record: "x"},
		},
		{
			name: "two deliveries", died: []Work{{}, {}, {}, {Record: "x"}, {Record: "y"}},
			want: Past{Starts: 6, Suspect: Work{Record: "y"}, Crashes: 1, KeyCrashes: 2, Deep: true},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			now, poison := Past{}.Next()
			for i, f := range tc.died {
				if f != (Work{}) && !now.Isolates() {
					t.Fatalf("life %d notes %v and is not careful", i+1, f)
				}
				if poison != (Work{}) {
					t.Fatalf("%v is set aside after %d deaths", poison, i)
				}
				now.InFlight = f
				now, poison = now.Next()
			}
			if diff := cmp.Diff(tc.want, now); diff != "" || poison != tc.poison {
				t.Errorf("set aside %v, want %v (-want +got):\n%s", poison, tc.poison, diff)
			}
		})
	}
}

func TestSuspectBacksOff(t *testing.T) {
	for deaths, want := range map[int]time.Duration{1: 2 * time.Second, 2: 4 * time.Second, 7: 128 * time.Second, 8: 256 * time.Second, 9: maxBackoff, 100: maxBackoff} {
		p := Past{Suspect: Work{"k", "x"}, KeyCrashes: deaths}
		if got := p.backoff("k"); got != want {
			t.Errorf("after %d deaths the key rests %s, want %s", deaths, got, want)
		}
		if got := p.backoff("l"); got != 0 {
			t.Errorf("another key rests %s", got)
		}
	}
	if maxBackoff >= StableAfter {
		t.Error("a key that rests longer than it takes to be calm is never handled in a careful life")
	}
}

// TestRecordIsTriedAtAnotherTimeOfEachRun: two lives of three in a row that end
// so long after their starts cannot both end while the record is noted.
func TestRecordIsTriedAtAnotherTimeOfEachRun(t *testing.T) {
	for _, note := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 5 * time.Second} {
		for starts := range 200 {
			at := func(n int) time.Duration { return Past{Starts: starts + n, Suspect: Work{"k", "x"}}.pause("x", note) }
			for _, pair := range [][2]int{{0, 1}, {1, 2}, {0, 2}} {
				if apart := (at(pair[0]) - at(pair[1])).Abs(); apart < 4*note || apart < minSpread/5 {
					t.Fatalf("starts %d and %d, a note takes %s: the tries are %s apart", starts+pair[0], starts+pair[1], note, apart)
				}
			}
		}
	}
	p := Past{Starts: 5, Suspect: Work{"k", "x"}}
	if p.pause("y", time.Second) != 0 || (Past{Starts: 5, Suspect: Work{Key: "k"}}).pause("", time.Second) != 0 {
		t.Error("a record that is not suspected waits")
	}
}
