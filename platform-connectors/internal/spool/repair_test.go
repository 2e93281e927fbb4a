package spool

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// written is a spool of n records, closed, and the segments of its log.
func written(t *testing.T, n, segmentBytes int) (dir string, files []string) {
	t.Helper()
	dir = t.TempDir()
	o := options(dir)
	o.SegmentBytes = segmentBytes
	s := open(t, o)
	for i := range n {
		add(t, s, rec(i, fmt.Sprintf("m%d", i)))
	}
	shut(t, s)
	files, err := filepath.Glob(filepath.Join(dir, logDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, files
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func ms(from, to int, without ...int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("m%d", i))
	}
	for _, w := range without {
		for i, m := range out {
			if m == fmt.Sprintf("m%d", w) {
				out = append(out[:i], out[i+1:]...)
				break
			}
		}
	}
	return out
}

// TestTornTailIsCutOff cuts the log at every byte of its last record, as a
// crash in the middle of a write can, with and without a tail of zeros.
func TestTornTailIsCutOff(t *testing.T) {
	dir, files := written(t, 3, 0)
	whole := read(t, files[0])
	last := len(whole) / 3 * 2
	for cut := last + 1; cut < len(whole); cut += 7 {
		for _, zeros := range []int{0, 4096} {
			write(t, files[0], append(bytes.Clone(whole[:cut]), make([]byte, zeros)...))
			o := options(dir)
			s, err := Open(o)
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if diff := cmp.Diff(ms(0, 2), messages(t, s, 0)); diff != "" {
				t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
			}
			add(t, s, rec(77, "m2"))
			if diff := cmp.Diff(ms(0, 3), messages(t, s, 0)); diff != "" {
				t.Fatalf("after appending (-want +got):\n%s", diff)
			}
			torn := len(bytes.TrimRight(whole[last:cut], "\x00")) // zeros are preallocated space
			if n := testutil.ToFloat64(o.Metrics.torn); n != float64(torn) {
				t.Fatalf("counted %v torn bytes, want %d", n, torn)
			}
			if n := testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadDamaged)); n != 0 {
				t.Fatalf("a torn tail counted as %v dead letters", n)
			}
			shut(t, s)
		}
	}
}

// TestDamageInTheMiddleLosesOnlyTheDamagedRecord flips one byte at a time
// through the second of three records.
func TestDamageInTheMiddleLosesOnlyTheDamagedRecord(t *testing.T) {
	dir, files := written(t, 3, 0)
	whole := read(t, files[0])
	size := len(whole) / 3
	for at := size + prefixLen(size); at < 2*size; at += 5 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x55
		write(t, files[0], damaged)
		o := options(dir)
		s, err := Open(o)
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		if diff := cmp.Diff(ms(0, 3, 1), messages(t, s, 0)); diff != "" {
			t.Fatalf("byte %d (-want +got):\n%s", at, diff)
		}
		entries, _, err := s.Read(1, 1)
		if err != nil || len(entries) != 1 || entries[0].Index != 3 {
			t.Fatalf("byte %d: the third record is not entry 3: %v, %v", at, entries, err)
		}
		if n := testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadDamaged)); n != 1 {
			t.Fatalf("byte %d: counted %v dead letters, want 1", at, n)
		}
		shut(t, s)
	}
	letters := read(t, filepath.Join(dir, deadLettersFile))
	if !strings.Contains(string(letters), `"reason":"damaged"`) || !strings.Contains(string(letters), `"index":2,"count":1`) {
		t.Errorf("dead letters: %.300s", letters)
	}
}

func TestDamagedLengthLosesNothing(t *testing.T) {
	dir, files := written(t, 3, 0)
	whole := read(t, files[0])
	for at := range prefixLen(len(whole) / 3) {
		damaged := bytes.Clone(whole)
		damaged[len(whole)/3+at] ^= 0xff
		write(t, files[0], damaged)
		s := open(t, options(dir))
		if diff := cmp.Diff(ms(0, 3), messages(t, s, 0)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		shut(t, s)
	}
}

func TestDamagedSegmentsKeepTheIndexesBehindThem(t *testing.T) {
	tests := map[string]struct {
		damage func(t *testing.T, files []string)
		want   []string
		dead   float64
	}{
		"a segment cut short": {
			func(t *testing.T, files []string) {
				b := read(t, files[1])
				write(t, files[1], b[:len(b)/2])
			}, ms(0, 12, 3), 1,
		},
		"an emptied segment": {
			func(t *testing.T, files []string) { write(t, files[1], nil) }, ms(0, 12, 2, 3), 2,
		},
		"a lost segment": {
			func(t *testing.T, files []string) {
				if err := os.Remove(files[1]); err != nil {
					t.Fatal(err)
				}
			}, ms(0, 12, 2, 3), 2,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir, files := written(t, 12, 1500)
			if len(files) != 7 {
				t.Fatalf("%d segments, the test needs two records in each", len(files))
			}
			tc.damage(t, files)
			o := options(dir)
			s := open(t, o)
			if diff := cmp.Diff(tc.want, messages(t, s, 0)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			entries, _, err := s.Read(11, 1)
			if err != nil || len(entries) != 1 || entries[0].Record.Event.Message != "m11" {
				t.Errorf("entry 12: %v, %v", entries, err)
			}
			if n := testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadDamaged)); n != tc.dead {
				t.Errorf("counted %v dead letters, want %v", n, tc.dead)
			}
		})
	}
}

// TestDamageAfterOpeningIsHealedByReading damages segments behind the back of an
// open spool.
func TestDamageAfterOpeningIsHealedByReading(t *testing.T) {
	for name, keep := range map[string]func(whole []byte) int{
		"in the middle of an entry":   func(b []byte) int { return len(b)/2 + 10 },
		"at the boundary of an entry": func(b []byte) int { return len(b) / 2 },
	} {
		t.Run(name, func(t *testing.T) {
			dir, files := written(t, 12, 1500)
			o := options(dir)
			o.SegmentBytes = 1500
			s := open(t, o)
			whole := read(t, files[1])
			write(t, files[1], whole[:keep(whole)])
			var got []string
			failures := 0
			for at := uint64(0); at < 12; {
				entries, upTo, err := s.Read(at, 1)
				if err != nil {
					if failures++; failures > 3 {
						t.Fatal(err)
					}
					continue
				}
				for _, e := range entries {
					got = append(got, e.Record.Event.Message)
				}
				at = upTo
			}
			if diff := cmp.Diff(ms(0, 12, 3), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			add(t, s, rec(100, "m12"))
			if diff := cmp.Diff(ms(9, 13), messages(t, s, 9)); diff != "" {
				t.Errorf("after appending (-want +got):\n%s", diff)
			}
			if n := testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadDamaged)); n != 1 {
				t.Errorf("counted %v dead letters, want 1", n)
			}
		})
	}
}

// TestRemovedDeadLettersAreCounted: two files of them are kept.
func TestRemovedDeadLettersAreCounted(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	large := make([]byte, maxDeadLetters*3/4) // more than a file, in base64
	for i := range 4 {
		s.bury(DeadDamaged, Damage{Index: uint64(i) + 1, Count: 1, Bytes: large})
	}
	if n := testutil.ToFloat64(o.Metrics.overwritten); n != 2 {
		t.Errorf("counted %v, want 2", n)
	}
	if n := testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadDamaged)); n != 4 {
		t.Errorf("%v dead letters, want 4", n)
	}
}
