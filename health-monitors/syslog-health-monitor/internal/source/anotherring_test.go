package source

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/kmsgtest"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// later are records as of records, at other times.
func later(from, to int) []any {
	var out []any
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("4,%d,%d,-;later %d\n", i, 1000*i+1, i))
	}
	return out
}

// TestKmsgOfAnotherRing: place is behind records 0 to 4 of boot a; then the ring has other
// records under the same boot id.
func TestKmsgOfAnotherRing(t *testing.T) {
	place := expectKmsg(t, openKmsg(t, &fakeRing{answers: records(0, 4)}, nil, "a"), "line 0", "line 1", "line 2", "line 3", "line 4")
	const before, another = "the ring buffer ends before the last read record", "another record at the last read position"
	for name, c := range map[string]struct {
		cursor json.RawMessage
		now    []any
		want   []string
		counts Counts
		gap    string // of the first line
	}{
		"it ends before the place": {place, later(0, 1), []string{"later 0", "later 1"}, Counts{Gaps: 1}, before},
		"it ends just before the place": {
			place, later(0, 3), []string{"later 0", "later 1", "later 2", "later 3"}, Counts{Gaps: 1}, before,
		},
		"it ends at the place": {place, later(3, 4), []string{"later 3", "later 4"}, Counts{Gaps: 1}, another},
		"it has more records":  {place, later(3, 5), []string{"later 3", "later 4", "later 5"}, Counts{Gaps: 1}, another},
		"it begins with records of before": {
			place, append(records(2, 3), later(4, 5)...), []string{"line 2", "line 3", "later 4", "later 5"}, Counts{Gaps: 1}, another,
		},
		"it begins behind the place": {place, later(7, 7), []string{"later 7"}, Counts{Gaps: 1, Lost: 2}, "overwritten"},
		"it has no record":           {place, nil, nil, Counts{}, ""},
		"it ends before a place without a time": {
			json.RawMessage(`{"boot":"a","next":5}`), later(0, 1), []string{"later 0", "later 1"}, Counts{Gaps: 1}, before,
		},
		"it is the same one":                       {place, records(0, 5), []string{"line 5"}, Counts{}, ""},
		"it is the same one, and was written anew": {place, records(4, 4), nil, Counts{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := openKmsg(t, &fakeRing{answers: c.now}, c.cursor, "a")
			var got []string
			lines, gap := readAll(t, s), ""
			for i, l := range lines {
				if got = append(got, l.Text); l.Gap != nil && i == 0 {
					gap = l.Gap.Why
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.counts, s.Counts()); diff != "" || !strings.Contains(gap, c.gap) || (c.gap == "") != (gap == "") {
				t.Errorf("gap %q, counts (-want +got):\n%s", gap, diff)
			}
			if len(lines) == 0 {
				return
			}
			// It is reported once: a further start goes on behind what was read now.
			s = openKmsg(t, &fakeRing{answers: c.now}, lines[len(lines)-1].Cursor, "a")
			expectKmsg(t, s)
			if s.Counts() != (Counts{}) {
				t.Errorf("a further start counts %+v", s.Counts())
			}
		})
	}
}

// floodedKmsg reads a ring whose records come while it is open, each opening from the
// oldest record on. Its place is behind records 0 to 4.
func floodedKmsg(t *testing.T) (*flooded, *Kmsg) {
	t.Helper()
	f := newFlooded(10)
	s := NewKmsg("ring", clock.RealClock{})
	s.dial, s.size = func(string) (device, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.at, f.closed = f.first, make(chan struct{})
		return f, nil
	}, nil
	if err := s.Open(json.RawMessage(`{"boot":"a","next":5,"usec":4}`), "a"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return f, s
}

// readFor reads once a second.
func readFor(t *testing.T, s *Kmsg, seconds int) (texts []string) {
	t.Helper()
	for range seconds {
		time.Sleep(devicePollInterval)
		synctest.Wait()
		b, err := s.Read(9)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range b.Lines {
			texts = append(texts, l.Text)
		}
	}
	return texts
}

// TestKmsgOfAnotherRingThatIsEmptyAtFirst: an empty ring proves nothing, its first records do.
func TestKmsgOfAnotherRingThatIsEmptyAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := floodedKmsg(t)
		if got := readFor(t, s, 10); got != nil || s.Counts() != (Counts{}) {
			t.Fatalf("of an empty ring: %v, counts %+v", got, s.Counts())
		}
		f.write("a")
		got := readFor(t, s, 10)
		f.write("b")
		got = append(got, readFor(t, s, 10)...)
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" || s.Counts() != (Counts{Gaps: 1}) {
			t.Errorf("counts %+v, lines (-want +got):\n%s", s.Counts(), diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestKmsgOfADeviceThatPausesIsTheSameRing: no line comes twice.
func TestKmsgOfADeviceThatPausesIsTheSameRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := floodedKmsg(t)
		var got []string
		for i := range 7 {
			f.write(fmt.Sprint("line ", i))
			got = append(got, readFor(t, s, 1)...)
		}
		if diff := cmp.Diff([]string{"line 5", "line 6"}, got); diff != "" || s.Counts() != (Counts{}) {
			t.Errorf("counts %+v, lines (-want +got):\n%s", s.Counts(), diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestKmsgResumesAndRestarts: the ring of a device is read by one start after the other,
// each line once, and is read completely when it has restarted.
func TestKmsgResumesAndRestarts(t *testing.T) {
	d, err := kmsgtest.Open(filepath.Join(t.TempDir(), "kernel"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	printed := func(what string, count int) (texts []string) {
		t.Helper()
		for i := range count {
			texts = append(texts, fmt.Sprintf("%s %d", what, i))
		}
		if err := d.Print(texts...); err != nil {
			t.Fatal(err)
		}
		return texts
	}
	open := func(place json.RawMessage) *Kmsg {
		t.Helper()
		s := NewKmsg(d.Path(), clock.RealClock{})
		if s.size = nil; s.Open(place, "a") != nil {
			t.Fatal("the device was not opened")
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	expect := func(s *Kmsg, want []string) json.RawMessage {
		t.Helper()
		var lines []Line
		testkit.Until(t, time.Minute, func() bool { // an end before the first record proves nothing
			lines = append(lines, readAll(t, s)...)
			return len(lines) >= len(want)
		})
		var got []string
		for _, l := range append(lines, readAll(t, s)...) {
			got = append(got, l.Text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("lines (-want +got):\n%s", diff)
		}
		return lines[len(lines)-1].Cursor
	}
	const some = 3000
	place := expect(open(nil), printed("first", some))
	for round := range 10 {
		s := open(place)
		place = expect(s, printed(fmt.Sprint("round ", round), 10))
		if s.Counts() != (Counts{}) {
			t.Fatalf("a start in the same ring counts %+v", s.Counts())
		}
	}
	for _, count := range []int{some / 2, some + 200} { // it ends before the place, or behind it
		d.Reboot()
		want := printed(fmt.Sprint("anew ", count), count)
		s := open(place)
		place = expect(s, want)
		if s.Counts() != (Counts{Gaps: 1}) {
			t.Errorf("a ring that began anew counts %+v", s.Counts())
		}
	}
}
