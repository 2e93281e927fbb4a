package spool

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
)

// remains is what outlives the process.
type remains struct {
	t     *testing.T
	dir   string
	kills func(record.Record) bool
	got   []string // what a reader got in the last life
	tries int      // of the last life
	o     Options
}

// life opens the spool, reads it to its end and does nothing more until it is
// over: it dies of a record, or is killed, or stops.
func (d *remains) life(stop bool, work func(*Spool)) (died bool) {
	d.t.Helper()
	d.got, d.tries, d.o = nil, 0, options(d.dir)
	s := open(d.t, d.o)
	defer func() {
		if recover() != nil {
			died = true
		}
		if died || !stop {
			close(s.crashLoop.ended) // nothing is written any more
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
		lives := 1
		first := func(s *Spool) { add(t, s, rec(1, "a"), rec(2, "poison"), rec(3, "c")) }
		for d.life(true, first) {
			first = nil
			if lives++; lives > 10 {
				t.Fatal("the process dies for ever")
			}
		}
		if diff := cmp.Diff([]string{"a", "c"}, d.got); diff != "" || lives != 6 {
			t.Errorf("life %d got (-want +got):\n%s", lives, diff)
		}
		if n := testutil.ToFloat64(d.o.Metrics.DeadLetters.WithLabelValues(DeadFatal)); n != 1 {
			t.Errorf("%v dead letters are counted, want 1", n)
		}
		letters := d.letters()
		if len(letters) != 1 || letters[0].Reason != DeadFatal || letters[0].Index != 2 || !strings.Contains(string(letters[0].Bytes), "poison") {
			t.Errorf("dead letters %+v", letters)
		}
		d.life(true, func(s *Spool) {
			want := []Fatal{{Index: 2, ID: rec(2, "").ID}}
			if diff := cmp.Diff(want, s.Untold()); diff != "" {
				t.Errorf("to tell of (-want +got):\n%s", diff)
			}
			if err := s.Told(2); err != nil || len(s.Untold()) > 0 {
				t.Errorf("told: %v, left %v", err, s.Untold())
			}
		})
		if diff := cmp.Diff([]string{"a", "c"}, d.got); diff != "" || d.tries > 0 || len(d.letters()) != 1 {
			t.Errorf("the next life tried %d, has %d letters and got (-want +got):\n%s", d.tries, len(d.letters()), diff)
		}
		d.life(true, func(s *Spool) {
			if err := s.Reader("store").Confirm(3); err != nil {
				t.Fatal(err)
			}
		})
		d.life(true, func(s *Spool) {
			if len(s.crashLoop.Fatal) > 0 {
				t.Errorf("what is released is remembered: %v", s.crashLoop.Fatal)
			}
		})
	})
}

// TestKillsFromOutsideSetNothingAside: a process that is killed again and again
// while it works, or waits, loses nothing of the spool; a stop, or ten minutes,
// begin anew.
func TestKillsFromOutsideSetNothingAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &remains{t: t, dir: t.TempDir(), kills: func(record.Record) bool { return false }}
		all := []string{"a", "b", "c"}
		for n := range 12 {
			d.life(false, func(s *Spool) {
				if n == 0 {
					add(t, s, rec(1, "a"), rec(2, "b"), rec(3, "c"))
				}
				if past := s.crashLoop.Past; past.Starts != n+1 || past.Careful() != s.crashLoop.careful.Load() {
					t.Errorf("life %d knows of %d starts", n+1, past.Starts)
				}
			})
			if !slices.Equal(d.got, all) || n > 1 && d.tries != 3 || len(d.letters()) > 0 {
				t.Errorf("life %d got %v after %d tries; dead letters %v", n+1, d.got, d.tries, d.letters())
			}
		}
		d.life(false, func(s *Spool) {
			<-time.After(consume.CalmAfter + time.Second)
			synctest.Wait()
			if s.crashLoop.careful.Load() || s.crashLoop.Past != (consume.Past{}) {
				t.Errorf("after ten minutes it remembers %+v", s.crashLoop.Past)
			}
		})
		if d.life(true, nil); !slices.Equal(d.got, all) || d.tries > 0 {
			t.Errorf("got %v after %d tries", d.got, d.tries)
		}
	})
}
