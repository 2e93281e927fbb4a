package source

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/health-monitors/internal/journaltest"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

const (
	bootA = "aaaaaaaa-0000-4000-8000-00000000000a"
	bootB = "bbbbbbbb-0000-4000-8000-00000000000b"
	bootC = "cccccccc-0000-4000-8000-00000000000c"
)

// reading is a reader of a real journal.
type reading struct {
	t      *testing.T
	clock  *testclock.FakeClock
	s      *Journal
	cursor json.RawMessage
	notes  []string
}

func read(t *testing.T, dir, boot string, cursor json.RawMessage) *reading {
	t.Helper()
	r := &reading{t: t, clock: testclock.NewFakeClock(time.Unix(1_900_000_000, 0)), cursor: cursor}
	r.s = NewJournal(journaltest.Journalctl(t), dir, r.clock)
	if err := r.s.Open(cursor, boot); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.s.Close() })
	return r
}

// until reads until enough returns true, and returns the lines.
func (r *reading) until(what string, enough func(lines []Line, end bool) bool) []Line {
	r.t.Helper()
	var lines []Line
	deadline := time.After(2 * time.Minute)
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		b, err := r.s.Read(100)
		r.notes = append(r.notes, b.Notes...)
		if err != nil {
			r.t.Fatalf("waiting for %s: %v", what, err)
		}
		for _, l := range b.Lines {
			lines, r.cursor = append(lines, l), l.Cursor
		}
		if enough(lines, b.End) {
			return lines
		}
		if len(b.Lines) > 0 {
			continue
		}
		select {
		case <-poll.C:
		case <-deadline:
			r.t.Fatalf("waiting for %s; got %v, notes %v", what, summarize(lines), r.notes)
		}
	}
}

// end reads to the end.
func (r *reading) end() []Line {
	r.t.Helper()
	return r.until("the end", func(_ []Line, end bool) bool { return end })
}

// lines reads that many lines.
func (r *reading) lines(n int) []Line {
	r.t.Helper()
	return r.until(fmt.Sprint(n, " lines"), func(lines []Line, _ bool) bool { return len(lines) >= n })
}

func summarize(lines []Line) []string {
	var out []string
	for _, l := range lines {
		what := l.Text
		if l.Past {
			what += " past"
		}
		if !l.Kernel {
			what += " user"
		}
		if l.Root {
			what += " root"
		}
		out = append(out, what)
	}
	return out
}

func expectLines(t *testing.T, got []Line, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, summarize(got)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestJournalIsReadFromTheCurrentBootThenLive(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "old")
	j.Kernel(bootB, "one")
	j.Program(bootB, 1000, "app", "NVRM: Xid")
	j.Kernel(bootB, "two")
	r := read(t, j.Dir, bootB, nil)
	got := r.end()
	expectLines(t, got, "one", "two")
	if got[0].Boot != bootB || got[0].At.IsZero() || got[0].SinceBoot <= 0 {
		t.Errorf("line %+v", got[0])
	}
	j.Kernel(bootB, "three")
	expectLines(t, r.lines(1), "three")
	j.Kernel(bootB, "four")
	expectLines(t, r.lines(1), "four")
	if diff := cmp.Diff(Counts{}, r.s.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestJournalGoesOnByCursorAndKnowsTheBoots(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one", "two")
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end(), "one", "two")
	j.Kernel(bootA, "three")
	j.Kernel(bootB, "four")
	j.Kernel(bootC, "five")
	r = read(t, j.Dir, bootC, r.cursor)
	got := r.end()
	expectLines(t, got, "three past", "four past", "five")
	if got[0].Boot != bootA || got[1].Boot != bootB || got[2].Boot != bootC {
		t.Errorf("boots %s %s %s", got[0].Boot, got[1].Boot, got[2].Boot)
	}
	r = read(t, j.Dir, bootC, r.cursor)
	expectLines(t, r.end())
	if diff := cmp.Diff(Counts{}, r.s.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestJournalOfAnEmptyFolderIsFollowed(t *testing.T) {
	j := journaltest.New(t)
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end())
	j.Kernel(bootA, "first")
	expectLines(t, r.lines(1), "first")
}

func TestJournalIsReadAcrossRotationAndVacuum(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one")
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end(), "one")
	// Rotated while it is followed, and while nobody reads.
	j.Rotate()
	j.Kernel(bootA, "two")
	expectLines(t, r.lines(1), "two")
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	j.Kernel(bootA, "three")
	j.Rotate()
	j.Kernel(bootA, "four")
	r = read(t, j.Dir, bootA, r.cursor)
	expectLines(t, r.end(), "three", "four")
	if n := r.s.Counts().Gaps; n != 0 {
		t.Errorf("%d gaps without a loss", n)
	}
}

// TestJournalWithoutCursorIsAGap: what stands behind the place is not
// read again, whatever journalctl makes of a cursor it does not find.
func TestJournalWithoutCursorIsAGap(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one")
	j.Rotate()
	j.Kernel(bootA, "two")
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end(), "one", "two")
	_ = r.s.Close()
	j.Kernel(bootA, "unread")
	j.Rotate()
	j.Kernel(bootA, "four")
	j.Remove("two")
	r = read(t, j.Dir, bootA, r.cursor)
	expectLines(t, r.end(), "four")
	if n := r.s.Counts().Gaps; n != 1 {
		t.Errorf("%d gaps, want 1", n)
	}
	if len(r.notes) != 1 || !strings.Contains(r.notes[0], "no longer contains") {
		t.Errorf("notes %q", r.notes)
	}
}

func TestJournalWipedByAReboot(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one")
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end(), "one")
	_ = r.s.Close()
	j.Wipe() // a volatile journal
	j.Kernel(bootB, "two")
	r = read(t, j.Dir, bootB, r.cursor)
	expectLines(t, r.end(), "two")
	if n := r.s.Counts().Gaps; n != 1 {
		t.Errorf("%d gaps, want 1", n)
	}
}

func TestJournalNamesWriter(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "kernel")
	j.Entry(bootA, "_TRANSPORT=kernel", "SYSLOG_FACILITY=3", "SYSLOG_IDENTIFIER=echo", "MESSAGE=into kmsg")
	j.Program(bootA, 0, kernellog.ResetTag, "by root")
	j.Program(bootA, 1000, kernellog.ResetTag, "by a user")
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end(), "kernel", "echo: into kmsg user root", "nvsentinel-gpu-reset: by root user root", "nvsentinel-gpu-reset: by a user user")
}

func TestJournalSkipsUnreadableEntries(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one")
	j.Bytes(bootA, "MESSAGE", []byte("\xff\xfe NVRM: \x00 bytes"))
	j.Bytes(bootA, "MESSAGE", []byte(strings.Repeat("x", 3<<20)))
	j.Bytes(bootA, "MESSAGE", []byte("two\nlines"))
	j.Entry(bootA, "_TRANSPORT=kernel", "MESSAGE=first", "MESSAGE=second", "MESSAGE_ID=a", "MESSAGE_ID=b")
	j.Entry(bootA, "_TRANSPORT=driver", "_UID=0", "MESSAGE_ID=e9bf28e6e834481bb6f48f548ad13606", "MESSAGE=Missed 17 kernel messages")
	j.Kernel(bootA, "end")
	r := read(t, j.Dir, bootA, nil)
	got := summarize(r.end())
	want := []string{"one", "\uFFFD NVRM: \x00 bytes", "", "two\nlines", "first", "Missed 17 kernel messages user root", "end"}
	if len(got) > 4 && got[4] == "second" {
		want[4] = "second" // the journal does not keep the order of equal fields
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Counts{Gaps: 1, Lost: 17, Cut: 1}, r.s.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestJournalFloodIsReadWholeAndInOrder(t *testing.T) {
	const total = 20_000
	j := journaltest.New(t)
	var texts []string
	for i := range total {
		texts = append(texts, fmt.Sprintf("noise %d %s", i, strings.Repeat("y", 60)))
	}
	j.Kernel(bootA, texts[:total/2]...)
	r := read(t, j.Dir, bootA, nil)
	got := r.end()
	j.Kernel(bootA, texts[total/2:]...)
	got = append(got, r.lines(total/2)...)
	if diff := cmp.Diff(texts, summarize(got)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestJournalReaderThatWaitedLooksUpItsPlace: while the outbox is full nobody
// reads, and the journal may drop what was not read.
func TestJournalReaderThatWaitedLooksUpItsPlace(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one")
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end(), "one")
	j.Kernel(bootA, "two")
	j.Rotate()
	j.Kernel(bootA, "three")
	j.Remove("one")
	r.clock.Step(lagLimit + time.Second)
	expectLines(t, r.lines(1), "three")
	if n := r.s.Counts().Gaps; n != 1 {
		t.Errorf("%d gaps, want 1; notes %q", n, r.notes)
	}
}

func TestDeadJournalctlIsStartedAgainAfterAPause(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one")
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end(), "one")
	r.s.reader.stop() // as a signal from outside would
	r.untilError()
	j.Kernel(bootA, "two")
	if _, err := r.s.Read(1); err == nil {
		t.Error("no pause was kept")
	}
	r.clock.Step(restartPace)
	expectLines(t, r.lines(1), "two")
	if diff := cmp.Diff(Counts{Restarts: 1}, r.s.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// untilError reads until the source reports that its reader is gone.
func (r *reading) untilError() error {
	r.t.Helper()
	deadline := time.After(2 * time.Minute)
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		b, err := r.s.Read(100)
		if err != nil {
			return err
		}
		for _, l := range b.Lines {
			r.cursor = l.Cursor
		}
		select {
		case <-poll.C:
		case <-deadline:
			r.t.Fatal("no error")
		}
	}
}

func TestUnreadablePlaceInAJournalIsAGap(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one")
	r := read(t, j.Dir, bootA, json.RawMessage(`{"entry":"s=;i=zz"}`))
	expectLines(t, r.end(), "one")
	if n := r.s.Counts().Gaps; n != 1 {
		t.Errorf("%d gaps, want 1", n)
	}
	// A place of another kind of source is no place.
	r = read(t, j.Dir, bootA, json.RawMessage(`{"boot":"x","next":7}`))
	expectLines(t, r.end(), "one")
	if err := r.s.Open(json.RawMessage("{"), bootA); err == nil {
		t.Error("a broken cursor was accepted")
	}
}

// TestJournalOfOtherMachinesIsIgnored: collected journals and those of a cloned
// disk may lie in the same folder.
func TestJournalOfOtherMachinesIsIgnored(t *testing.T) {
	j := journaltest.New(t)
	j.Kernel(bootA, "one")
	r := read(t, j.Dir, bootA, nil)
	expectLines(t, r.end(), "one")
	ours := j.Machine
	j.Machine = strings.Repeat("9", 32)
	j.Kernel(bootC, "of another machine, live")
	j.Machine = ours
	j.Kernel(bootA, "two")
	expectLines(t, r.lines(1), "two")
	_ = r.s.Close()
	j.Machine = strings.Repeat("9", 32)
	j.Kernel(bootC, "of another machine, before our reboot")
	j.Machine = ours
	j.Kernel(bootA, "three")
	j.Kernel(bootB, "four")
	r = read(t, j.Dir, bootB, r.cursor)
	expectLines(t, r.end(), "three past", "four")
	if n := r.s.Counts().Gaps; n != 0 {
		t.Errorf("%d gaps", n)
	}
}

// TestAnEntryIsOfItsBootAndNotOfTheFuture: the clock was wrong when it was written.
func TestAnEntryIsOfItsBootAndNotOfTheFuture(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) uint64 { return uint64(now.Add(-d).UnixMicro()) }
	tenth := uint64(10 * time.Minute / time.Microsecond)
	s := NewJournal("journalctl", "journal", clockAt(now))
	s.boot, s.uptime = bootA, func() time.Duration { return time.Hour }
	for name, c := range map[string]struct {
		place kernellog.Position
		want  time.Duration // ago
	}{
		"right":                        {kernellog.Position{Boot: bootA, Monotonic: tenth, Wall: ago(49 * time.Minute)}, 49 * time.Minute},
		"before the boot":              {kernellog.Position{Boot: bootA, Monotonic: tenth, Wall: 1}, 50 * time.Minute},
		"in the future":                {kernellog.Position{Boot: bootA, Monotonic: tenth, Wall: ago(-time.Hour)}, 50 * time.Minute},
		"later than the boot is old":   {kernellog.Position{Boot: bootA, Monotonic: 7 * tenth, Wall: ago(-time.Hour)}, 0},
		"of a past boot":               {kernellog.Position{Boot: bootB, Monotonic: tenth, Wall: ago(9 * time.Hour)}, 9 * time.Hour},
		"of a past boot in the future": {kernellog.Position{Boot: bootB, Monotonic: tenth, Wall: ago(-time.Hour)}, 0},
	} {
		if got := s.written(c.place); !got.Equal(now.Add(-c.want)) {
			t.Errorf("%s: %s, want %s", name, got, now.Add(-c.want))
		}
	}
	if got := s.written(kernellog.Position{Boot: bootA, Monotonic: tenth}); !got.IsZero() {
		t.Errorf("an entry without a time is of %s", got)
	}
}

// clockAt is a clock that stands.
type clockAt time.Time

func (c clockAt) Now() time.Time                  { return time.Time(c) }
func (c clockAt) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
