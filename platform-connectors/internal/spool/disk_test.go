package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// disk does not give one byte of one file back. A file that replaces it is in
// another place.
type disk struct {
	bad atomic.Pointer[os.FileInfo]
	at  atomic.Int64
}

func (d *disk) fail(t *testing.T, path string, at int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	d.at.Store(at)
	d.bad.Store(&info)
}

func (d *disk) read(f *os.File, b []byte, from int64) (int, error) {
	if bad, at := d.bad.Load(), d.at.Load(); bad != nil && from <= at && at < from+int64(len(b)) {
		if now, err := f.Stat(); err == nil && os.SameFile(*bad, now) {
			return 0, syscall.EIO
		}
	}
	return f.ReadAt(b, from)
}

// long is a record that takes several pages.
func long(i int) string { return fmt.Sprintf("m%d", i) + strings.Repeat("x", 2*page) }

func names(all []string) []string {
	var out []string
	for _, m := range all {
		out = append(out, strings.TrimRight(m, "x"))
	}
	return out
}

// filled is a closed spool of ten records of several pages each.
func filled(t *testing.T, o Options) (files []string) {
	t.Helper()
	s := open(t, o)
	for i := range 10 {
		add(t, s, rec(i, long(i)))
	}
	shut(t, s)
	files, err := filepath.Glob(filepath.Join(o.Dir, logDir, "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("segments %v, %v", files, err)
	}
	return files
}

// TestAnUnreadableSectorCostsItsEntries: what is behind it is delivered, what was
// lost is counted and named, and the spool takes records on.
func TestAnUnreadableSectorCostsItsEntries(t *testing.T) {
	tests := map[string]struct {
		segment int // from the end if negative
		at      func(size int64) int64
		lost    int // at most, of the ten; at least one
		epoch   bool
	}{
		"at the beginning":             {0, func(int64) int64 { return 0 }, 1, false},
		"in the middle":                {0, func(size int64) int64 { return size / 2 }, 2, false},
		"at the end of a full segment": {0, func(size int64) int64 { return size - 1 }, 1, false},
		"at the end of the log":        {-1, func(size int64) int64 { return size - 1 }, 1, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := options(t.TempDir())
			o.SegmentBytes = 64 << 10
			files := filled(t, o)
			file := files[(tc.segment+len(files))%len(files)]
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			epoch := string(read(t, filepath.Join(o.Dir, epochFile)))
			// The number of the bad file must not be given to the one that replaces it.
			if err := os.Link(file, filepath.Join(o.Dir, "bad")); err != nil {
				t.Fatal(err)
			}
			var d disk
			d.fail(t, file, tc.at(info.Size()))
			o.Metrics, o.pread = options("").Metrics, d.read
			spool := open(t, o)
			got := messages(t, spool, 0)
			if len(got) < 10-tc.lost || len(got) == 10 {
				t.Errorf("left are %v", names(got))
			}
			if n := testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadDamaged)); !tc.epoch && n != float64(10-len(got)) {
				t.Errorf("counted %v dead letters, %d are missing", n, 10-len(got))
			}
			if _, err := os.Stat(filepath.Join(o.Dir, deadLettersFile)); err != nil {
				t.Errorf("what was lost is named nowhere: %v", err)
			}
			if tc.epoch == (spool.Epoch()+"\n" == epoch) {
				t.Errorf("epoch %s, before %s", spool.Epoch(), epoch)
			}
			add(t, spool, rec(10, "and on"))
			if got := messages(t, spool, 0); got[len(got)-1] != "and on" {
				t.Errorf("after one more: %v", names(got))
			}
		})
	}
}

// TestASectorThatFailsWhileTheSpoolRuns: a read meets the bad sector, the spool repairs
// itself and continues to take records; indexes of durable entries are not given again.
func TestASectorThatFailsWhileTheSpoolRuns(t *testing.T) {
	o := options(t.TempDir())
	var d disk
	o.pread = d.read
	s := open(t, o)
	for i := range 10 {
		add(t, s, rec(i, long(i)))
	}
	for i := range s.live {
		s.live[i].record = nil // as of long ago
	}
	last := s.wal.last()
	if err := os.Link(last.path, filepath.Join(o.Dir, "bad")); err != nil {
		t.Fatal(err)
	}
	d.fail(t, last.path, last.size()-1)
	if _, _, err := s.Read(0, 100); err == nil {
		t.Fatal("the sector was read")
	}
	if diff := cmp.Diff(ms(0, 9), names(messages(t, s, 0))); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadDamaged)); n != 1 {
		t.Errorf("counted %v dead letters, want 1", n)
	}
	add(t, s, rec(10, "m10"))
	if _, committed := s.Bounds(); committed != 11 {
		t.Errorf("the next has index %d, want 11", committed)
	}
	shut(t, s)
	o.Metrics = options("").Metrics
	if diff := cmp.Diff(append(ms(0, 9), "m10"), names(messages(t, open(t, o), 0))); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

// TestAnotherErrorOfTheDiskBuriesNothing: such an error does not show what is on the disk.
func TestAnotherErrorOfTheDiskBuriesNothing(t *testing.T) {
	o := options(t.TempDir())
	o.SegmentBytes = 64 << 10
	filled(t, o)
	o.Metrics, o.pread = options("").Metrics, func(*os.File, []byte, int64) (int, error) { return 0, syscall.ENOMEM }
	if _, err := Open(o); err == nil {
		t.Fatal("opened")
	}
	o.Metrics, o.pread = options("").Metrics, nil
	if got := messages(t, open(t, o), 0); len(got) != 10 {
		t.Errorf("left are %v", names(got))
	}
}
