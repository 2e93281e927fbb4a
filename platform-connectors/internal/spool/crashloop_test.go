package spool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashloop"
)

// remains is what outlives the process.
type remains struct {
	t     *testing.T
	dir   string
	kills func(record.Record) bool
	got   []string // what a reader got in the last life
	tries int      // of the last life
	o     Options
	pread pread // nil reads
}

// run opens the spool, reads it to its end and does nothing more until it is
// over: it dies of a record, or is killed, or stops.
func (d *remains) run(stop bool, work func(*Spool)) (died bool) {
	d.t.Helper()
	d.got, d.tries, d.o = nil, 0, options(d.dir)
	d.o.pread = d.pread
	s := open(d.t, d.o)
	defer func() {
		if recover() != nil {
			died = true
		}
		if died || !stop {
			s.crashLoop.end() // nothing is written any more
			s.wal.tail.Close()
			s.lock.Close()
		}
	}()
	look := func(r record.Record) {
		if d.kills(r) {
			panic("this process is dead")
		}
	}
	s.Try(func(r record.Record) { d.tries++; look(r) })
	if work != nil {
		work(s)
	}
	released, _ := s.Bounds()
	for at := released; ; {
		entries, upTo, err := s.Read(at, 100)
		if err != nil {
			d.t.Fatal(err)
		}
		if upTo == at {
			break
		}
		for _, e := range entries {
			look(e.Record)
			d.got = append(d.got, e.Record.Event.Message)
		}
		at = upTo
	}
	if stop {
		shut(d.t, s)
	}
	return false
}

func (d *remains) letters() (out []deadLetter) {
	d.t.Helper()
	b, err := os.ReadFile(filepath.Join(d.dir, deadLettersFile))
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var l deadLetter
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			d.t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// TestAnEntryThatKillsIsPassedOver: the process dies whenever it looks at one
// entry. It is found by its tries, becomes a dead letter with its bytes, and
// everything else is delivered, in this life and the next ones.
func TestAnEntryThatKillsIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &remains{t: t, dir: t.TempDir(), kills: func(r record.Record) bool { return r.Event.Message == "poison" }}
		runs := 1
		first := func(s *Spool) { add(t, s, rec(1, "a"), rec(2, "poison"), rec(3, "c")) }
		for d.run(true, first) {
			first = nil
			if runs++; runs > 10 {
				t.Fatal("the process dies for ever")
			}
		}
		if diff := cmp.Diff([]string{"a", "c"}, d.got); diff != "" || runs != 6 {
			t.Errorf("life %d got (-want +got):\n%s", runs, diff)
		}
		if n := testutil.ToFloat64(d.o.Metrics.DeadLetters.WithLabelValues(DeadFatal)); n != 1 {
			t.Errorf("%v dead letters are counted, want 1", n)
		}
		letters := d.letters()
		if len(letters) != 1 || letters[0].Reason != DeadFatal || letters[0].Index != 2 || !strings.Contains(string(letters[0].Bytes), "poison") {
			t.Errorf("dead letters %+v", letters)
		}
		d.run(true, func(s *Spool) {
			want := []Fatal{{Index: 2, ID: rec(2, "").ID}}
			if diff := cmp.Diff(want, s.Unreported()); diff != "" {
				t.Errorf("to tell of (-want +got):\n%s", diff)
			}
			if err := s.MarkReported(2); err != nil || len(s.Unreported()) > 0 {
				t.Errorf("told: %v, left %v", err, s.Unreported())
			}
		})
		if diff := cmp.Diff([]string{"a", "c"}, d.got); diff != "" || d.tries > 0 || len(d.letters()) != 1 {
			t.Errorf("the next life tried %d, has %d letters and got (-want +got):\n%s", d.tries, len(d.letters()), diff)
		}
		d.run(true, func(s *Spool) {
			if err := s.Reader("store").Confirm(3); err != nil {
				t.Fatal(err)
			}
		})
		d.run(true, func(s *Spool) {
			if len(s.crashLoop.Fatal) > 0 {
				t.Errorf("what is released is remembered: %v", s.crashLoop.Fatal)
			}
		})
	})
}

// TestExternalKillsDeadLetterNothing: a process that is killed again and again while it
// works, or waits, loses nothing of the spool; a stop, or ten minutes, starts the count
// again.
func TestExternalKillsDeadLetterNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &remains{t: t, dir: t.TempDir(), kills: func(record.Record) bool { return false }}
		all := []string{"a", "b", "c"}
		for n := range 12 {
			d.run(false, func(s *Spool) {
				if n == 0 {
					add(t, s, rec(1, "a"), rec(2, "b"), rec(3, "c"))
				}
				if past := s.crashLoop.Past; past.Starts != n+1 || past.Isolates() != s.crashLoop.Isolates() {
					t.Errorf("life %d knows of %d starts", n+1, past.Starts)
				}
			})
			if !slices.Equal(d.got, all) || n > 1 && d.tries != 3 || len(d.letters()) > 0 {
				t.Errorf("life %d got %v after %d tries; dead letters %v", n+1, d.got, d.tries, d.letters())
			}
		}
		d.run(false, func(s *Spool) {
			<-time.After(crashloop.StableAfter + time.Second)
			synctest.Wait()
			if s.crashLoop.Isolates() || s.crashLoop.Past != (crashloop.Past{}) {
				t.Errorf("after ten minutes it remembers %+v", s.crashLoop.Past)
			}
		})
		if d.run(true, nil); !slices.Equal(d.got, all) || d.tries > 0 {
			t.Errorf("got %v after %d tries", d.got, d.tries)
		}
	})
}

// TestTheAccountOfAnEarlierVersionGoesOn: what was in flight at its last crash, in a file
// of its own, counts, and the file is gone.
func TestTheAccountOfAnEarlierVersionGoesOn(t *testing.T) {
	for flight, want := range map[string]struct{ letters, tries int }{
		"0000000006 00000000000000000002\n": {1, 2},
		"0000000005 00000000000000000002\n": {0, 3}, // of an earlier start
		"0000000006 00000000000000000000\n": {0, 3}, // nothing
		"00000":                             {0, 3}, // torn
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &remains{t: t, dir: t.TempDir(), kills: func(record.Record) bool { return false }}
			var epoch string
			d.run(false, func(s *Spool) {
				add(t, s, rec(1, "a"), rec(2, "poison"), rec(3, "c"))
				epoch = s.Epoch()
			})
			write(t, filepath.Join(d.dir, crashStateFile), fmt.Appendf(nil, `{"epoch":%q,"past":{"starts":6,"suspect":{"record":"2"},"deaths":2,"keyDeaths":3}}`, epoch))
			write(t, filepath.Join(d.dir, "in-flight"), []byte(flight))
			if d.run(true, nil) || len(d.letters()) != want.letters || d.tries != want.tries {
				t.Errorf("with %q: %d dead letters, %d tries", flight, len(d.letters()), d.tries)
			}
			if _, err := os.Stat(filepath.Join(d.dir, "in-flight")); !os.IsNotExist(err) {
				t.Errorf("the file of the earlier version is left: %v", err)
			}
		})
	}
}

// TestUnreadableEntryIsDeadLettered: an unreadable entry is dead-lettered at the next
// start, without three further crashes.
func TestUnreadableEntryIsDeadLettered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &remains{t: t, dir: t.TempDir(), kills: func(r record.Record) bool { return r.Event.Message == "poison" }}
		starts, failed := 1, false
		d.pread = func(f *os.File, b []byte, at int64) (int, error) {
			if starts == 6 && len(b) < page && !failed { // of the entry alone
				failed = true
				return 0, syscall.EIO
			}
			return f.ReadAt(b, at)
		}
		first := func(s *Spool) { add(t, s, rec(1, "a"), rec(2, "poison"), rec(3, "c")) }
		for d.run(true, first) {
			first = nil
			if starts++; starts > 12 {
				t.Fatal("the process dies for ever")
			}
		}
		if diff := cmp.Diff([]string{"a", "c"}, d.got); diff != "" || starts != 7 || !failed || len(d.letters()) != 1 {
			t.Errorf("start %d, with %d dead letters, got (-want +got):\n%s", starts, len(d.letters()), diff)
		}
	})
}
