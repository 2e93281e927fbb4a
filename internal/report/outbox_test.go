package report_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report"
)

func open(t *testing.T, path string, o report.Options) *report.Outbox {
	t.Helper()
	b, err := report.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func appendMessages(t *testing.T, b *report.Outbox, messages ...string) {
	t.Helper()
	err := b.Write(func(tx *report.Tx) error {
		for _, m := range messages {
			if err := tx.Append(&protos.HealthEvent{Message: m}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func messages(t *testing.T, b *report.Outbox) []string {
	t.Helper()
	entries, err := b.Peek(0, 1000, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%d %s", e.Seq, e.Event.GetMessage()))
	}
	return out
}

func TestSeqAndEpochSurviveAndNeverFall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "outbox.db")
	b := open(t, path, report.Options{})
	if b.Origin() != report.Created {
		t.Errorf("origin of a new outbox is %s", b.Origin())
	}
	appendMessages(t, b, "a", "b")
	epoch, first := b.Epoch(), b.Runs()
	if err := b.Remove(1, 2); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	b = open(t, path, report.Options{})
	if b.Origin() != report.Resumed || b.Epoch() != epoch {
		t.Errorf("origin %s, epoch %s; want resumed, %s", b.Origin(), b.Epoch(), epoch)
	}
	appendMessages(t, b, "c")
	entries, err := b.Peek(0, 10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	e := entries[0].Event
	want := map[string]string{"seq": "3", "seqEpoch": epoch, "seqRuns": b.Runs()}
	if diff := cmp.Diff(want, e.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if strings.Contains(first, " ") || !strings.HasSuffix(b.Runs(), " "+first) {
		t.Errorf("the runs are %q and then %q, want another behind the first", first, b.Runs())
	}
	if id, err := uuid.Parse(e.Id); err != nil || id.Version() != 7 {
		t.Errorf("id %q is not a UUIDv7: %v", e.Id, err)
	}
}

// TestARestoredFileKnowsItsPast: what is counted after a restart follows what was
// counted before it; what a file counts that was restored from an image follows
// what the image knew, and is not compared with what was counted meanwhile.
func TestARestoredFileKnowsItsPast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	appended := int64(0)
	cycle := func() record.Record { // opens the outbox, counts one event, and closes it
		b := open(t, path, report.Options{})
		appendMessages(t, b, "x")
		entries, err := b.Peek(0, 100, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		appended++
		r := record.Record{Append: appended, Event: record.FromProto(entries[len(entries)-1].Event)}
		r.Seq, r.SeqEpoch, _ = r.Event.Seq()
		return r
	}
	image := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	kept := cycle()
	old := image()
	lost, lostToo := cycle(), cycle()
	if !fault.Follows(kept, lost) || !fault.Follows(lost, lostToo) || !fault.Follows(kept, lostToo) || fault.Before(lost, kept) {
		t.Error("a restart is followed by what is not later")
	}
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	again := cycle()
	if again.Seq != lost.Seq || again.SeqEpoch != lost.SeqEpoch {
		t.Fatalf("the restored file counts %d of %s, before %d of %s", again.Seq, again.SeqEpoch, lost.Seq, lost.SeqEpoch)
	}
	for _, r := range []record.Record{lost, lostToo} {
		if fault.Before(again, r) || !fault.Before(r, again) || fault.Follows(r, again) {
			t.Errorf("what was lost, %d, is not taken for earlier because it was stored earlier", r.Seq)
		}
	}
	if !fault.Follows(kept, again) {
		t.Error("what the image knew is not known to be earlier")
	}
}

// TestRunsWithoutEventsLeaveNoName: a monitor that dies at every start pushes no
// name out of the list.
func TestRunsWithoutEventsLeaveNoName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	first := ""
	for i := range 12 {
		b := open(t, path, report.Options{})
		if i == 0 {
			appendMessages(t, b, "x")
			first = b.Runs()
		} else if run, before, _ := strings.Cut(b.Runs(), " "); before != first || run == first {
			t.Fatalf("runs at start %d: %q", i, b.Runs())
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneTransactionHoldsEventAndNote(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	boom := errors.New("boom")
	err := b.Write(func(tx *report.Tx) error {
		if err := tx.Append(&protos.HealthEvent{Message: "lost"}); err != nil {
			return err
		}
		if err := tx.SetNote("cursor", []byte("9")); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("error is %v", err)
	}
	note, err := b.Note("cursor")
	if err != nil || note != nil || b.Stats().Entries != 0 || b.Stats().LastSeq != 0 {
		t.Errorf("after a rollback: note %q, error %v, stats %+v", note, err, b.Stats())
	}
	err = b.Write(func(tx *report.Tx) error {
		if err := tx.Append(&protos.HealthEvent{Message: "kept"}); err != nil {
			return err
		}
		return tx.SetNote("cursor", []byte("10"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if note, _ := b.Note("cursor"); string(note) != "10" {
		t.Errorf("note is %q", note)
	}
	if diff := cmp.Diff([]string{"1 kept"}, messages(t, b)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestFullOutboxRefusesAndTheTransactionGoesOn(t *testing.T) {
	for name, o := range map[string]report.Options{
		"entries": {MaxEntries: 2},
		"bytes":   {MaxBytes: 300},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, filepath.Join(t.TempDir(), "outbox.db"), o)
			var full int
			err := b.Write(func(tx *report.Tx) error {
				for i := range 5 {
					err := tx.Append(&protos.HealthEvent{Message: fmt.Sprint(i)})
					if errors.Is(err, report.ErrFull) {
						full++
					} else if err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if s := b.Stats(); s.Entries != 2 || full != 3 || s.Refused != 3 {
				t.Errorf("full %d times, stats %+v; want two kept and three refused", full, s)
			}
			if err := b.Remove(1); err != nil {
				t.Fatal(err)
			}
			appendMessages(t, b, "after")
			if diff := cmp.Diff([]string{"2 1", "3 after"}, messages(t, b)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppendRefusesUnsendableEvents(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	for _, c := range []struct {
		message string
		want    error
	}{
		{"\xff\xfe", report.ErrInvalid},
		{strings.Repeat("x", report.MaxEventBytes), report.ErrTooLarge},
	} {
		err := b.Write(func(tx *report.Tx) error { return tx.Append(&protos.HealthEvent{Message: c.message}) })
		if !errors.Is(err, c.want) {
			t.Errorf("error is %v, want %v", err, c.want)
		}
	}
}

func TestStatsFollowTheContent(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	path := filepath.Join(t.TempDir(), "outbox.db")
	b := open(t, path, report.Options{Clock: clk})
	appendMessages(t, b, "a")
	clk.SetTime(time.Unix(2000, 0))
	appendMessages(t, b, "b")
	changed := b.Changed()
	if err := b.Bury(1, "no good"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("a burial did not wake the waiters")
	}
	got := b.Stats()
	if got.Entries != 1 || got.FirstSeq != 2 || got.LastSeq != 2 || got.Dead != 1 || !got.Oldest.Equal(time.Unix(2000, 0)) {
		t.Errorf("stats %+v", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path, report.Options{Clock: clk})
	if diff := cmp.Diff(got, again.Stats()); diff != "" {
		t.Errorf("stats after a restart (-want +got):\n%s", diff)
	}
	letters, err := again.DeadLetters()
	if err != nil || len(letters) != 1 || letters[0].Reason != "no good" || letters[0].Seq != 1 {
		t.Errorf("letters %+v, error %v", letters, err)
	}
}

func TestPeekKeepsToItsBounds(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "outbox.db"), report.Options{})
	big := strings.Repeat("x", 1000)
	appendMessages(t, b, big, big, big, big)
	for _, c := range []struct{ count, bytes, want int }{{10, 1 << 20, 4}, {3, 1 << 20, 3}, {10, 2500, 2}, {10, 1, 1}} {
		entries, err := b.Peek(0, c.count, c.bytes)
		if err != nil || len(entries) != c.want {
			t.Errorf("Peek(%d, %d) gave %d entries, error %v; want %d", c.count, c.bytes, len(entries), err, c.want)
		}
	}
}

func TestDamagedFileIsReplacedAndLogged(t *testing.T) {
	damage := map[string]func(t *testing.T, path string){
		"not a database": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("not a database at all"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"torn": func(t *testing.T, path string) {
			if err := os.Truncate(path, 3*int64(os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
		},
		"scribbled": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			junk := strings.Repeat("\xa5", int(info.Size())-2*os.Getpagesize())
			if _, err := f.WriteAt([]byte(junk), 2*int64(os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, harm := range damage {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "outbox.db")
			b := open(t, path, report.Options{})
			epoch := b.Epoch()
			for i := range 50 {
				appendMessages(t, b, strings.Repeat(fmt.Sprint(i), 400))
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			harm(t, path)
			b = open(t, path, report.Options{})
			if b.Origin() != report.Replaced || b.Epoch() == epoch || b.Stats().Entries != 0 {
				t.Errorf("origin %s, same epoch %t, stats %+v; want a new outbox", b.Origin(), b.Epoch() == epoch, b.Stats())
			}
			if _, err := os.Stat(path + ".damaged"); err != nil {
				t.Errorf("the damaged file is gone: %v", err)
			}
		})
	}
}

// TestConcurrentWritersAgree appends and removes at once: the stats must be
// those of the content, and nobody may miss a change.
func TestConcurrentWritersAgree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	b := open(t, path, report.Options{})
	const total = 300
	done := make(chan error, 1)
	go func() {
		for i := range total {
			err := b.Write(func(tx *report.Tx) error { return tx.Append(&protos.HealthEvent{Message: fmt.Sprint(i)}) })
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for removed := 0; removed < total; {
		changed := b.Changed()
		entries, err := b.Peek(0, 7, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := b.Remove(e.Seq); err != nil {
				t.Fatal(err)
			}
			removed++
		}
		if len(entries) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-time.After(2 * time.Minute):
			t.Fatalf("no change was told after %d of %d entries: %+v", removed, total, b.Stats())
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := b.Stats(); s.Entries != 0 || s.Bytes != 0 || s.FirstSeq != 0 || s.LastSeq != total {
		t.Errorf("stats %+v", s)
	}
}
