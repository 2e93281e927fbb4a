package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

// sizeOf is the size of an event that a line gives.
func sizeOf(t *testing.T, change func(*record.Event)) (size int) {
	t.Helper()
	newLine().give(0, change, func(e *record.Event) {
		_, size = identify(record.NodeIdentity{UID: "u", BootID: "b"}, *e)
	})
	return size
}

// sized is an event of so many bytes.
func sized(t *testing.T, bytes int) func(*record.Event) {
	t.Helper()
	message := func(n int) func(*record.Event) {
		return func(e *record.Event) { e.Message = strings.Repeat("x", n) }
	}
	return message(bytes - sizeOf(t, message(1)) + 1)
}

// TestCountedEvents: the same event twice, and what becomes of the second.
func TestCountedEvents(t *testing.T) {
	entries := func(n int) func(*record.Event) {
		return func(e *record.Event) {
			for i := len(e.Metadata); i < n; i++ {
				e.Metadata[fmt.Sprint("k", i)] = "v"
			}
		}
	}
	for name, tc := range map[string]struct {
		event func(*record.Event)
		want  string
	}{
		"of the largest size":                    {sized(t, MaxEvent), ""},
		"a byte larger":                          {sized(t, MaxEvent+1), "2x1"},
		"with room for a count and for a demand": {entries(admission.MaxMetadata - notes - 1), ""},
		"with an entry too many for that":        {entries(admission.MaxMetadata - notes), "2x1"},
		"that says how many it stands for":       {func(e *record.Event) { e.Metadata[record.MetadataRepeats] = "5" }, "2x5"},
		"that says when they happened":           {func(e *record.Event) { e.Metadata[record.MetadataRepeatTimes] = "0+0x1" }, "2x1"},
	} {
		l := newLine()
		l.give(0, tc.event)
		if got := summarize(l.give(0, tc.event)); got != tc.want {
			t.Errorf("an event %s goes as %q, want %q", name, got, tc.want)
		}
	}
}

// TestOneRepeatGoesAsItCame: it stands for nothing but itself.
func TestOneRepeatGoesAsItCame(t *testing.T) {
	l := newLine()
	l.give(0)
	var came record.Event
	l.give(time.Second, func(e *record.Event) { came = *e })
	out := l.Flush(noon)
	if len(out) != 1 || out[0].Accepted != "" {
		t.Fatalf("it goes as %+v", out)
	}
	if diff := cmp.Diff(came, out[0].Event); diff != "" {
		t.Errorf("changed (-came +went):\n%s", diff)
	}
}

// TestTheWindowBeginsAgain with the next event that is stored, as if it were the
// first.
func TestTheWindowBeginsAgain(t *testing.T) {
	l := newLine()
	var steps []string
	for _, after := range []time.Duration{0, MaxWindow, 2*MaxWindow - 1} {
		steps = append(steps, summarize(l.give(after)))
	}
	due, ok := l.Due()
	if got := strings.Join(steps, "|"); got != "1x1|2x1|" || !ok || !due.Equal(noon.Add(3*MaxWindow-1)) {
		t.Errorf("got %s, due %v (%t)", got, due, ok)
	}
}

// TestNothingIsDueUnlessCounted: before the first repeat, and after it is stored.
func TestNothingIsDueUnlessCounted(t *testing.T) {
	l := newLine()
	due := func(want bool) {
		t.Helper()
		if at, ok := l.Due(); ok != want {
			t.Errorf("due %v: %t, want %t", at, ok, want)
		}
	}
	due(false)
	l.give(0)
	due(false)
	l.give(0)
	due(true)
	l.Flush(noon)
	due(false)
}

// TestARecoveryInEitherForm ends the repeats: as it was sent, and as the pipeline
// makes it.
func TestARecoveryInEitherForm(t *testing.T) {
	for name, tc := range map[string]struct{ sent, made bool }{
		"as it was sent": {sent: true}, "as the pipeline makes it": {made: true}, "in both": {true, true},
	} {
		l := newLine()
		var r record.Record
		l.give(0)
		l.give(0, func(e *record.Event) { r = record.Record{ID: "r", Event: *e} })
		as := r.Event
		r.Event.IsHealthy, as.IsHealthy = tc.sent, tc.made
		r.Event.Metadata, as.Metadata = nil, nil
		if got := summarize(l.Take(noon, 3, r, as)) + "|" + summarize(l.give(0)); got != "2x1 rx1|3x1" {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestBursts: a pause of a second begins another one, and one more than a record
// bears is another record's.
func TestBursts(t *testing.T) {
	for name, tc := range map[string]struct {
		pause  time.Duration
		repeat int
		stored string // before the last repeat is counted
		bursts int
	}{
		"less than a second":         {together - 1, 3, "", 1},
		"a second":                   {together, 3, "", 3},
		"as many as a record bears":  {together, record.MaxBursts, "", record.MaxBursts},
		"one more":                   {together, record.MaxBursts + 1, fmt.Sprintf("%dx%d", record.MaxBursts+1, record.MaxBursts), 1},
		"many times without a pause": {0, 1000, "", 1},
	} {
		l := newLine()
		at := noon.Add(-time.Hour)
		happens := func(e *record.Event) { e.GeneratedTimestamp = at }
		l.give(0, happens)
		stored := ""
		for range tc.repeat {
			at = at.Add(tc.pause)
			stored += summarize(l.give(0, happens))
		}
		if got := len(l.counted[0].bursts); stored != tc.stored || got != tc.bursts {
			t.Errorf("with a pause of %s: %q is stored, and %d bursts are counted", name, stored, got)
		}
	}
}

// TestWhenAnEventHappened: a publisher's clock may be ahead, its events came no later
// than they were accepted.
func TestWhenAnEventHappened(t *testing.T) {
	for name, tc := range map[string]struct{ generated, accepted, want time.Time }{
		"before it was accepted":              {noon.Add(-time.Hour), noon, noon.Add(-time.Hour)},
		"as it was accepted":                  {noon, noon, noon},
		"after it was accepted":               {noon.Add(time.Hour), noon, noon},
		"nobody knows when it was accepted":   {noon, time.Time{}, noon},
		"neither: as a time before all times": {},
	} {
		got := happened(record.Record{CreatedAt: tc.accepted, Event: record.Event{GeneratedTimestamp: tc.generated}})
		if !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestMemoryAndSpoolAtTheirBounds: what fills a bound is counted, a byte more has
// everything stored first.
func TestMemoryAndSpoolAtTheirBounds(t *testing.T) {
	size := sizeOf(t, func(*record.Event) {})
	for name, tc := range map[string]struct {
		bytes, held int
		want        string
	}{
		"memory":           {bytes: MaxRepeatBytes - size},
		"memory, a byte":   {bytes: MaxRepeatBytes - size + 1, want: "2x1"},
		"spool":            {held: MaxPendingBytes - size},
		"spool, by a byte": {held: MaxPendingBytes - size + 1, want: "2x1"},
	} {
		l := newLine()
		l.give(0)
		l.give(0)
		l.bytes, l.pendingBytes = tc.bytes, tc.held
		if got := summarize(l.give(0)); got != tc.want {
			t.Errorf("%s: %q is stored, want %q", name, got, tc.want)
		}
	}
}

// TestRepeatsMemory: memory has the newest of each event, and the spool keeps all
// that came since the first of them.
func TestRepeatsMemory(t *testing.T) {
	size := sizeOf(t, func(*record.Event) {})
	other := func(e *record.Event) { e.EntitiesImpacted[0].EntityValue = "GPU-2" }
	l := newLine()
	for i, step := range []struct {
		change      []func(*record.Event)
		bytes, held int // in events
	}{
		{nil, 0, 0}, {nil, 1, 1}, {nil, 1, 2}, {[]func(*record.Event){other}, 1, 3}, {[]func(*record.Event){other}, 2, 4}, {nil, 2, 5},
	} {
		l.give(0, step.change...)
		if l.bytes != step.bytes*size || l.pendingBytes != step.held*size {
			t.Errorf("event %d: %d bytes are kept and %d held, of %d each", i+1, l.bytes, l.pendingBytes, size)
		}
	}
	if l.Flush(noon); l.bytes != 0 || l.pendingBytes != 0 {
		t.Errorf("with nothing counted %d bytes are kept and %d held", l.bytes, l.pendingBytes)
	}
}

// TestCapacityIsCheckedOncePerSecond: when every identity is in use, capacity is checked
// once per second, or immediately if the clock was set back.
func TestCapacityIsCheckedOncePerSecond(t *testing.T) {
	for name, tc := range map[string]struct {
		since time.Duration // the last look
		found bool
	}{
		"at once":               {0, false},
		"just before":           {time.Second - 1, false},
		"a second later":        {time.Second, true},
		"the clock is set back": {-1, true},
	} {
		l := newLine()
		for i := range MaxIdentities {
			key, _ := identify(record.NodeIdentity{}, record.Event{ID: "x", Message: fmt.Sprint(i)})
			l.remember(noon, key, record.Record{})
		}
		l.swept = noon.Add(MaxWindow - tc.since)
		l.give(MaxWindow)
		if found := len(l.give(MaxWindow)) == 0; found != tc.found {
			t.Errorf("%s: the repeat of a new event is counted: %t, want %t", name, found, tc.found)
		}
	}
}

// TestOrdersAreBounded: that of so many outboxes is followed, one more makes all
// unknown. Another event of one that is followed changes nothing.
func TestOrdersAreBounded(t *testing.T) {
	for outboxes, want := range map[int]int{maxEpochs - 1: maxEpochs - 1, maxEpochs: maxEpochs, maxEpochs + 1: 1} {
		l := newLine()
		for i := range outboxes {
			l.give(0, func(e *record.Event) { e.Metadata["seqEpoch"] = fmt.Sprint("outbox ", i) })
		}
		l.give(0, func(e *record.Event) {
			e.Metadata["seqEpoch"], e.Metadata["seq"] = fmt.Sprint("outbox ", outboxes-1), "1000"
		})
		if got := len(l.newest); got != want {
			t.Errorf("of %d outboxes the order of %d is known, want %d", outboxes, got, want)
		}
	}
}
