package pipeline

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// line is a counter that is given events one after the other.
type line struct {
	*Repeats
	index uint64
}

func newLine() *line { return &line{Repeats: NewRepeats(MaxWindow)} }

// give accepts an event so long after noon and returns what goes to the store.
func (l *line) give(after time.Duration, change ...func(*record.Event)) []record.Record {
	l.index++
	at := noon.Add(after)
	r := record.Record{ID: fmt.Sprint(l.index), CreatedAt: at, Node: record.NodeIdentity{UID: "u", BootID: "b"}, Event: record.Event{
		Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", NodeName: "gpu-7", IsFatal: true,
		ErrorCode: []string{"79"}, EntitiesImpacted: []record.Entity{{EntityType: "GPU_UUID", EntityValue: "GPU-1"}},
		Message: "GPU has fallen off the bus", RecommendedAction: record.ActionRestartVM, GeneratedTimestamp: at,
		ProcessingStrategy: record.Process,
		Metadata:           map[string]string{"seq": strconv.FormatUint(l.index, 10), "seqEpoch": "e", "bootID": "b"},
	}}
	for _, c := range change {
		c(&r.Event)
	}
	if boot, another := strings.CutPrefix(r.Event.Metadata["test-node-boot"], "="); another {
		delete(r.Event.Metadata, "test-node-boot")
		r.Node.BootID = boot
	}
	now := at
	var due []record.Record
	if d, ok := l.Due(); ok && !now.Before(d) {
		due = l.Flush(now)
	}
	return append(due, l.Take(now, l.index, r, r.Event)...)
}

// summarize is records as "<id>x<events>", demoted ones with a "-".
func summarize(records []record.Record) string {
	var out []string
	for _, r := range records {
		n, _ := r.Event.Repeats()
		text := fmt.Sprint(r.ID, "x", n)
		if of := r.Event.Metadata[record.MetadataRepeatOf]; of != "" {
			text += "-" + of
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// TestRepeatDetection: the first event is always stored at once; the table defines whether
// the second is.
func TestRepeatDetection(t *testing.T) {
	meta := func(key, value string) func(*record.Event) {
		return func(e *record.Event) { e.Metadata[key] = value }
	}
	tests := map[string]struct {
		after  time.Duration
		change func(*record.Event)
		want   string
	}{
		"the same":                     {after: time.Second},
		"the same at once":             {},
		"just in the window":           {after: MaxWindow - 1},
		"out of the window":            {after: MaxWindow, want: "2x1"},
		"from before":                  {after: -time.Second, want: "2x1"},
		"another boot of the event":    {change: meta("bootID", "next"), want: "2x1"},
		"another boot of the Node":     {change: meta("test-node-boot", "=next"), want: "2x1"},
		"another outbox":               {change: meta("seqEpoch", "f"), want: "2x1"},
		"other registers":              {change: meta("REG0", "10"), want: "2x1"},
		"other metadata":               {change: meta("chassis", "C9"), want: "2x1"},
		"another code":                 {change: func(e *record.Event) { e.ErrorCode = []string{"48"} }, want: "2x1"},
		"another entity":               {change: func(e *record.Event) { e.EntitiesImpacted[0].EntityValue = "GPU-2" }, want: "2x1"},
		"another agent":                {change: func(e *record.Event) { e.Agent = "x" }, want: "2x1"},
		"another check":                {change: func(e *record.Event) { e.CheckName = "x" }, want: "2x1"},
		"another class":                {change: func(e *record.Event) { e.ComponentClass = "NIC" }, want: "2x1"},
		"another action":               {change: func(e *record.Event) { e.RecommendedAction = record.ActionReplaceVM }, want: "2x1"},
		"another custom action":        {change: func(e *record.Event) { e.CustomRecommendedAction = "x" }, want: "2x1"},
		"not fatal":                    {change: func(e *record.Event) { e.IsFatal = false }, want: "2x1"},
		"a recovery":                   {change: func(e *record.Event) { e.IsHealthy = true }, want: "2x1"},
		"an observation":               {change: func(e *record.Event) { e.ProcessingStrategy = record.PersistOnly }, want: "2x1"},
		"with force":                   {change: func(e *record.Event) { e.QuarantineOverrides = &record.Override{Force: true} }, want: "2x1"},
		"with a drain override":        {change: func(e *record.Event) { e.DrainOverrides = &record.Override{Skip: true} }, want: "2x1"},
		"other words, a rule may read": {change: func(e *record.Event) { e.Message = "x" }, want: "2x1"},
		"not in its publisher's order": {change: meta("seq", "1"), want: "2x1"},
		"one that says it repeats":     {change: meta(record.MetadataRepeats, "1000"), want: "2x1000"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLine()
			if got := summarize(l.give(0)); got != "1x1" {
				t.Fatalf("the first goes as %q", got)
			}
			change := tc.change
			if change == nil {
				change = func(*record.Event) {}
			}
			if got := summarize(l.give(tc.after, change)); got != tc.want {
				t.Errorf("goes as %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAThousandEventsMakeTwoRecords: the first at once, and one that stands for all
// others, a window later at the latest.
func TestAThousandEventsMakeTwoRecords(t *testing.T) {
	l := newLine()
	var out []record.Record
	for i := range 1000 {
		out = append(out, l.give(time.Duration(i)*time.Minute/1000)...)
	}
	due, ok := l.Due()
	if !ok || due.After(noon.Add(2*MaxWindow)) || l.Confirmed(1000) != 1 {
		t.Errorf("due %v (%v), the spool may be released up to %d", due, ok, l.Confirmed(1000))
	}
	out = append(out, l.Flush(due)...)
	if got := summarize(out); got != "1x1 1000x999" {
		t.Fatalf("a thousand events make the records %s", got)
	}
	last := out[1]
	n, since := last.Event.Repeats()
	bursts := last.Event.Bursts()
	if n != 999 || !since.Equal(noon.Add(60*time.Millisecond)) || len(bursts) != 1 || !bursts[0].To.Equal(last.Event.GeneratedTimestamp) {
		t.Errorf("%d since %v, in %v", n, since, bursts)
	}
	accepted := last.Event
	accepted.Metadata = map[string]string{"seq": "1000", "seqEpoch": "e", "bootID": "b"}
	if last.Accepted == "" || last.Accepted != record.Digest(accepted) {
		t.Error("the record is not known by the event that was accepted")
	}
	if l.Confirmed(1000) != 1000 {
		t.Errorf("with everything stored the spool may be released up to %d", l.Confirmed(1000))
	}
	if got := summarize(l.give(3 * time.Minute)); got != "1001x1" {
		t.Errorf("after a pause the next goes as %q", got)
	}
}

func TestOneRecordAMinute(t *testing.T) {
	l := newLine()
	rows := 0
	for i := range 10 * 60 * 10 { // ten a second, ten minutes
		rows += len(l.give(time.Duration(i) * 100 * time.Millisecond))
	}
	if rows < 10 || rows > 11 {
		t.Errorf("ten minutes of repeats are %d records", rows)
	}
}

// TestCountIsSentBeforeRecovery: a count is sent before a recovery, and events after it are new.
func TestCountIsSentBeforeRecovery(t *testing.T) {
	recovery := func(e *record.Event) { e.IsHealthy, e.ErrorCode = true, nil }
	other := func(e *record.Event) { e.CheckName = "SysLogsSXIDError" }
	l := newLine()
	var steps []string
	for i, change := range [][]func(*record.Event){nil, nil, nil, {other}, {other}, {other, recovery}, nil, {recovery}, nil, nil, {other}} {
		steps = append(steps, summarize(l.give(time.Duration(i)*time.Second, change...)))
	}
	want := "1x1|||4x1||3x2 5x1 6x1||7x1 8x1|9x1||11x1"
	if got := strings.Join(steps, "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAReleaseMakesTheNextEventNew: nothing that was seen before a person ended the
// fault begins it again, and nothing that comes after is taken for a repeat.
func TestAReleaseMakesTheNextEventNew(t *testing.T) {
	l := newLine()
	l.give(0)
	l.give(time.Second)
	l.give(2 * time.Second)
	out := l.Release(noon.Add(3 * time.Second))
	if got := summarize(out); got != "3x2-1" || out[0].Event.ProcessingStrategy != record.PersistOnly || out[0].Accepted == "" {
		t.Errorf("what was counted goes as %q, %s", got, out[0].Event.ProcessingStrategy)
	}
	if got := summarize(l.give(4 * time.Second)); got != "4x1" {
		t.Errorf("the next goes as %q", got)
	}
	if out := newLine().Release(noon); len(out) != 0 {
		t.Errorf("of nothing %s is stored", summarize(out))
	}
}

// TestARefusedRecordHasNoRepeats, others have. What was counted already is to be
// stored, whatever became of the first.
func TestARefusedRecordHasNoRepeats(t *testing.T) {
	for name, tc := range map[string]struct {
		before  int // events
		refused string
		want    string
	}{
		"it":                       {1, "1", "2x1"},
		"another":                  {1, "7", ""},
		"it, and one was counted":  {2, "1", ""},
		"the one that was counted": {2, "2", ""},
	} {
		l := newLine()
		for range tc.before {
			l.give(0)
		}
		l.Refused(tc.refused)
		if got := summarize(l.give(time.Second)); got != tc.want {
			t.Errorf("%s: the next goes as %q, want %q", name, got, tc.want)
		}
	}
}

// TestAnEventThatIsSentAgainIsNoRepeat: the same id, from a publisher without an
// order that did not hear the answer.
func TestAnEventThatIsSentAgainIsNoRepeat(t *testing.T) {
	l := newLine()
	unordered := func(e *record.Event) { delete(e.Metadata, "seq") }
	var out []string
	for _, id := range []uint64{1, 1, 2, 2, 3} {
		l.index = id - 1
		out = append(out, summarize(l.give(0, unordered)))
	}
	if got := strings.Join(out, "|") + "|" + summarize(l.Flush(noon)); got != "1x1|1x1||2x1||3x2" {
		t.Errorf("got %s", got)
	}
}

func TestWithoutAWindowNothingIsCounted(t *testing.T) {
	l := &line{Repeats: NewRepeats(0)}
	if got := summarize(l.give(0)) + summarize(l.give(0)); got != "1x12x1" || l.Confirmed(2) != 2 {
		t.Errorf("got %s", got)
	}
}

func TestIdentitiesAreBounded(t *testing.T) {
	l := newLine()
	gpu := func(i int) func(*record.Event) {
		return func(e *record.Event) { e.EntitiesImpacted[0].EntityValue = fmt.Sprint("GPU-", i) }
	}
	for i := range MaxIdentities + 1 {
		if len(l.give(0, gpu(i))) != 1 {
			t.Fatalf("first event %d is not stored", i)
		}
	}
	if n := l.Identities(); n != MaxIdentities {
		t.Errorf("%d identities", n)
	}
	if len(l.give(0, gpu(0))) != 0 {
		t.Error("a known event's repeat is stored")
	}
	if len(l.give(0, gpu(MaxIdentities))) != 1 {
		t.Error("an event over the bound is not stored: it is lost")
	}
	if len(l.give(2*MaxWindow, gpu(MaxIdentities))) != 2 || len(l.give(2*MaxWindow, gpu(MaxIdentities))) != 0 {
		t.Error("when the others' windows have passed there is no room")
	}
}

func TestBytesAndTimesAreBounded(t *testing.T) {
	large := func(e *record.Event) { e.Message = strings.Repeat("x", MaxEvent) }
	l := newLine()
	if l.give(0, large); len(l.give(0, large)) != 1 {
		t.Error("a very large event is counted")
	}
	for what, full := range map[string]func(l *line){
		"memory": func(l *line) { l.bytes = MaxRepeatBytes - 100 }, "the spool": func(l *line) { l.pendingBytes = MaxPendingBytes },
	} {
		l := newLine()
		l.give(0)
		l.give(0)
		full(l)
		if got := summarize(l.give(0)); got != "2x1" || l.Confirmed(9) != 2 || l.bytes > 1024 || l.pendingBytes > 1024 {
			t.Errorf("with %s full %q goes, the spool is released up to %d, %d bytes are kept and %d held", what, got, l.Confirmed(9), l.bytes, l.pendingBytes)
		}
	}
	// A log that is read again: its events are hours apart and come at once.
	l = newLine()
	total, stored := 0, 0
	for i := range 1000 {
		at := noon.Add(time.Duration(i-1000) * time.Minute)
		for _, r := range l.give(0, func(e *record.Event) { e.GeneratedTimestamp = at }) {
			n, _ := r.Event.Repeats()
			total, stored = total+n, stored+1
			if len(r.Event.Metadata[record.MetadataRepeatTimes]) > admission.MaxMetadataValue || len(r.Event.Bursts()) > record.MaxBursts {
				t.Fatalf("the times have %d bytes", len(r.Event.Metadata[record.MetadataRepeatTimes]))
			}
		}
	}
	for _, r := range l.Flush(noon) {
		n, _ := r.Event.Repeats()
		total, stored = total+n, stored+1
	}
	if total != 1000 || stored > 20 {
		t.Errorf("%d events in %d records", total, stored)
	}
}
