package consume

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPast walks through lives: how each ended, and what the next one knows.
func TestPast(t *testing.T) {
	k, x, y := Flight{Key: "k"}, Flight{"k", "x"}, Flight{"k", "y"}
	cases := []struct {
		name string
		// died holds what was in flight when each life ended; a life that was not
		// careful has noted nothing.
		died  []Flight
		want  Past
		fatal Flight
	}{
		{name: "the first life", want: Past{Starts: 1}},
		{name: "after one death", died: make([]Flight, 1), want: Past{Starts: 2}},
		{name: "after two", died: make([]Flight, 2), want: Past{Starts: 3}},
		{name: "a key", died: []Flight{{}, {}, k}, want: Past{Starts: 4, Suspect: k, Deaths: 1, KeyDeaths: 1}},
		{name: "a key for ever", died: []Flight{{}, {}, k, k, k, k}, want: Past{Starts: 7, Suspect: k, Deaths: 4, KeyDeaths: 4}},
		{name: "its record once", died: []Flight{{}, {}, k, x}, want: Past{Starts: 5, Suspect: x, Deaths: 1, KeyDeaths: 2}},
		{name: "its record twice", died: []Flight{{}, {}, k, x, x}, want: Past{Starts: 6, Suspect: x, Deaths: 2, KeyDeaths: 3}},
		{name: "its record three times", died: []Flight{{}, {}, k, x, x, x}, want: Past{Starts: 7}, fatal: x},
		{name: "two records of a key", died: []Flight{{}, {}, k, x, y}, want: Past{Starts: 6, Suspect: y, Deaths: 1, KeyDeaths: 3}},
		{name: "the record, the key, the record", died: []Flight{{}, {}, k, x, k, x}, want: Past{Starts: 7, Suspect: x, Deaths: 1, KeyDeaths: 4}},
		{
			name: "something else between", died: []Flight{{}, {}, k, x, {}, x},
			want: Past{Starts: 7, Suspect: x, Deaths: 1, KeyDeaths: 1, Deep: true},
		},
		{name: "another key between", died: []Flight{{}, {}, k, x, {Key: "l"}, x}, want: Past{Starts: 7, Suspect: x, Deaths: 1, KeyDeaths: 1}},
		{name: "nothing in flight", died: make([]Flight, 3), want: Past{Starts: 4, Deep: true}},
		{
			name: "a delivery three times", died: []Flight{{}, {}, {}, {Record: "x"}, {Record: "x"}, {Record: "x"}},
			want: Past{Starts: 7, Deep: true}, fatal: Flight{Record: "x"},
		},
		{
			name: "two deliveries", died: []Flight{{}, {}, {}, {Record: "x"}, {Record: "y"}},
			want: Past{Starts: 6, Suspect: Flight{Record: "y"}, Deaths: 1, KeyDeaths: 2, Deep: true},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			now, fatal := Past{}.Next()
			for i, f := range tc.died {
				if f != (Flight{}) && !now.Careful() {
					t.Fatalf("life %d notes %v and is not careful", i+1, f)
				}
				if fatal != (Flight{}) {
					t.Fatalf("%v is set aside after %d deaths", fatal, i)
				}
				now.InFlight = f
				now, fatal = now.Next()
			}
			if diff := cmp.Diff(tc.want, now); diff != "" || fatal != tc.fatal {
				t.Errorf("set aside %v, want %v (-want +got):\n%s", fatal, tc.fatal, diff)
			}
		})
	}
}

func TestASuspectRests(t *testing.T) {
	for deaths, want := range map[int]time.Duration{1: 2 * time.Second, 2: 4 * time.Second, 7: 128 * time.Second, 8: 256 * time.Second, 9: maxRest, 100: maxRest} {
		p := Past{Suspect: Flight{"k", "x"}, KeyDeaths: deaths}
		if got := p.rest("k"); got != want {
			t.Errorf("after %d deaths the key rests %s, want %s", deaths, got, want)
		}
		if got := p.rest("l"); got != 0 {
			t.Errorf("another key rests %s", got)
		}
	}
	if maxRest >= CalmAfter {
		t.Error("a key that rests longer than it takes to be calm is never handled in a careful life")
	}
}

// TestARecordIsTriedAtAnotherTimeOfEachLife: two lives of three in a row that end
// so long after their starts cannot both end while the record is noted.
func TestARecordIsTriedAtAnotherTimeOfEachLife(t *testing.T) {
	for _, note := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 5 * time.Second} {
		for starts := range 200 {
			at := func(n int) time.Duration { return Past{Starts: starts + n, Suspect: Flight{"k", "x"}}.Pause("x", note) }
			for _, pair := range [][2]int{{0, 1}, {1, 2}, {0, 2}} {
				if apart := (at(pair[0]) - at(pair[1])).Abs(); apart < 4*note || apart < minSpread/5 {
					t.Fatalf("starts %d and %d, a note takes %s: the tries are %s apart", starts+pair[0], starts+pair[1], note, apart)
				}
			}
		}
	}
	p := Past{Starts: 5, Suspect: Flight{"k", "x"}}
	if p.Pause("y", time.Second) != 0 || (Past{Starts: 5, Suspect: Flight{Key: "k"}}).Pause("", time.Second) != 0 {
		t.Error("a record that is not suspected waits")
	}
}
