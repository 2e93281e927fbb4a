package spool

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestPreallocatedSpaceIsNoDamage opens what a killed process leaves: the files as
// they are, with the zeros that were prepared for later entries.
func TestPreallocatedSpaceIsNoDamage(t *testing.T) {
	for name, segment := range map[string]int{"one segment": 0, "several segments": 1500} {
		t.Run(name, func(t *testing.T) {
			o := options(t.TempDir())
			o.SegmentBytes = segment
			s := open(t, o)
			for i := range 11 {
				add(t, s, rec(i, fmt.Sprintf("m%d", i)))
			}
			dir := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(dir, os.DirFS(o.Dir)); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(dir, logDir, "*"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			if last := read(t, files[len(files)-1]); !bytes.HasSuffix(last, make([]byte, 100)) {
				t.Fatal("the last segment has no room that is prepared")
			}
			o.Dir = dir
			o = again(o)
			s = open(t, o)
			add(t, s, rec(11, "m11"))
			if diff := cmp.Diff(ms(0, 12), messages(t, s, 0)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			torn, dead := testutil.ToFloat64(o.Metrics.torn), testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadDamaged))
			if torn != 0 || dead != 0 {
				t.Errorf("counted %v torn bytes and %v dead letters", torn, dead)
			}
		})
	}
}

// TestEntriesLargerThanASegment: such entries also cross the preallocated space.
func TestEntriesLargerThanASegment(t *testing.T) {
	o := options(t.TempDir())
	o.SegmentBytes = ahead + 1000
	s := open(t, o)
	var want []string
	for i, size := range []int{10, ahead - 500, 10, ahead + 2000, 3 * ahead, 10} {
		want = append(want, fmt.Sprint(i)+strings.Repeat("x", size))
		add(t, s, rec(i, want[i]))
	}
	if diff := cmp.Diff(want, messages(t, s, 0)); diff != "" {
		t.Errorf("(-want +got):\n%.1000s", diff)
	}
	shut(t, s)
	s = open(t, again(o))
	if diff := cmp.Diff(want, messages(t, s, 0)); diff != "" {
		t.Errorf("after reopening (-want +got):\n%.1000s", diff)
	}
}

// again are the options of the next process.
func again(o Options) Options {
	next := options(o.Dir)
	next.SegmentBytes = o.SegmentBytes
	return next
}

// TestTheFileDoesNotGrowWithEveryEntry is what makes syncing them cheap.
func TestTheFileDoesNotGrowWithEveryEntry(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	sizes := map[int64]int{}
	s.sync = func(f *os.File) error {
		info, err := f.Stat()
		if err == nil {
			sizes[info.Size()]++
		}
		return err
	}
	for i := range 50 {
		add(t, s, rec(i, "m"))
	}
	if len(sizes) != 1 {
		t.Errorf("the file grew while there was room: %v", sizes)
	}
}

// TestRecalledRecordsAreThoseOnDisk reads the same entries from memory and, in
// the next process, from the disk.
func TestRecalledRecordsAreThoseOnDisk(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	for i := range recent + 10 {
		r := rec(i, fmt.Sprintf("m%d", i))
		r.CreatedAt = time.Now().UTC() // with a monotonic time
		if i%2 == 0 {
			r.Seq, r.SeqEpoch = uint64(i), "outbox"
		}
		r.Event.Metadata = map[string]string{"k": "v"}
		r.Event.ErrorCode, r.Event.RecommendedAction = []string{"79"}, record.ActionNone
		s.turn.Lock()
		s.waiting = append(s.waiting, joining(t, r))
		s.turn.Unlock()
	}
	s.commitAll()
	all := func(s *Spool) (out []Entry) {
		for at := uint64(0); ; {
			entries, upTo, err := s.Read(at, 100)
			if err != nil {
				t.Fatal(err)
			}
			if upTo == at {
				return out
			}
			out, at = append(out, entries...), upTo
		}
	}
	if entries, _ := s.recall(0, 10); len(entries) > 0 {
		t.Error("the oldest entries are still in memory")
	}
	if entries, _ := s.recall(10, 10); len(entries) != 10 {
		t.Error("the recent entries are not in memory")
	}
	recalled := all(s)
	shut(t, s)
	s = open(t, again(o))
	if diff := cmp.Diff(all(s), recalled); diff != "" || len(recalled) != recent+10 {
		t.Errorf("%d entries, (-disk +memory):\n%.2000s", len(recalled), diff)
	}
}

// joining is a request that waits to be committed.
func joining(t *testing.T, r record.Record) *request {
	t.Helper()
	f, err := newFrame(r)
	if err != nil {
		t.Fatal(err)
	}
	return &request{ctx: t.Context(), frames: []frame{f}, bytes: f.size(), done: make(chan error, 1)}
}
