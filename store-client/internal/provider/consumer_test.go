package provider

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/store-client/store"
)

// shelf is a store of one line on the server "here".
type shelf struct {
	line Line
	// before is done once before the next swap: by another process.
	before func()
	swaps  int
	letter store.DeadLetter
}

func (s *shelf) Line(context.Context, string) (Line, error)       { return s.line, nil }
func (s *shelf) Server(context.Context) (string, error)           { return "here", nil }
func (s *shelf) Dead(_ context.Context, l store.DeadLetter) error { s.letter = l; return nil }

func (s *shelf) Swap(_ context.Context, _ string, old, with Line) (bool, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	s.swaps++
	if s.line.Stored != old.Stored || s.line.Text != old.Text {
		return false, nil
	}
	s.line = with
	return true, nil
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func consumer(s *shelf) (*Consumer[count], *testclock.FakeClock) {
	c := testclock.NewFakeClock(noon)
	return &Consumer[count]{Name: "c", Kind: Inserts, Lines: s, Clock: c, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(nil)}, c
}

// marked is a position whose record was stored so many minutes after noon.
func marked(p count, minutes int) count {
	p.Mark = noon.Add(time.Duration(minutes) * time.Minute).UnixMicro()
	return p
}

func line(p count, minutes int) Line {
	mark := noon.Add(time.Duration(minutes) * time.Minute).Local()
	return Line{Stored: true, Text: PositionText(p), Mark: &mark}
}

func TestCommit(t *testing.T) {
	rescanning := marked(at(2, 3), 9)
	rescanning.Again = true
	elsewhere := at(1, 9)
	elsewhere.Server = "there"
	for name, tc := range map[string]struct {
		stored Line
		p      count
		want   Line
	}{
		"the first":                            {Line{}, marked(at(1, 1), 5), line(marked(at(1, 1), 5), 5)},
		"the next":                             {line(at(1, 1), 1), marked(at(1, 2), 5), line(marked(at(1, 2), 5), 5)},
		"one that comes late":                  {line(at(1, 3), 3), marked(at(1, 2), 5), line(at(1, 3), 3)},
		"one from before a rescan":             {line(at(2, 0), 3), marked(at(1, 9), 5), line(at(2, 0), 3)},
		"the watermark stands in a rescan":     {line(at(2, 0), 3), rescanning, line(rescanning, 3)},
		"a place without a record":             {line(at(1, 1), 1), at(1, 2), line(at(1, 2), 1)},
		"over garbage":                         {Line{Stored: true, Text: "x"}, marked(at(1, 1), 5), line(marked(at(1, 1), 5), 5)},
		"of a server that is gone":             {line(at(1, 1), 1), elsewhere, line(at(1, 1), 1)},
		"where the stored one's is gone":       {line(elsewhere, 1), marked(at(1, 1), 5), line(marked(at(1, 1), 5), 5)},
		"over one that follows the other kind": {Line{Stored: true, Text: `{"v":1,"s":"here","k":"changes","n":7}`}, marked(at(1, 1), 5), line(marked(at(1, 1), 5), 5)},
	} {
		s := &shelf{line: tc.stored}
		c, _ := consumer(s)
		if err := c.Commit(t.Context(), PositionText(tc.p)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, s.line); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	c, _ := consumer(&shelf{})
	for _, text := range []string{"x", `{"v":1,"s":"here","k":"changes","n":7}`} {
		if err := c.Commit(t.Context(), text); !errors.Is(err, ErrPosition) {
			t.Errorf("committing %s: %v, want ErrPosition", text, err)
		}
	}
}

// TestCommitOfTwo: another process commits between the look and the write.
func TestCommitOfTwo(t *testing.T) {
	for name, tc := range map[string]struct {
		other, want Line
		swaps       int
	}{
		"less far":  {line(at(1, 2), 2), line(marked(at(1, 5), 5), 5), 2},
		"further":   {line(at(1, 7), 7), line(at(1, 7), 7), 1},
		"a rescan":  {line(at(2, 0), 1), line(at(2, 0), 1), 1},
		"the first": {line(at(1, 4), 4), line(marked(at(1, 5), 5), 5), 2},
	} {
		s := &shelf{line: line(at(1, 1), 1)}
		if name == "the first" {
			s.line = Line{}
		}
		s.before = func() { s.line = tc.other }
		c, _ := consumer(s)
		if err := c.Commit(t.Context(), PositionText(marked(at(1, 5), 5))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, s.line); diff != "" || s.swaps != tc.swaps {
			t.Errorf("%s: %d tries, want %d (-want +got):\n%s", name, s.swaps, tc.swaps, diff)
		}
	}
}

func TestBegin(t *testing.T) {
	start := func(context.Context) (count, error) { return at(1, 0), nil }
	s := &shelf{}
	c, _ := consumer(s)
	since := noon.Add(time.Minute).Local()
	if first, err := c.Begin(t.Context(), since, start); !first || err != nil {
		t.Errorf("a new consumer began: %v, %v", first, err)
	}
	if diff := cmp.Diff(line(at(1, 0), 1), s.line); diff != "" {
		t.Errorf("it stands at (-want +got):\n%s", diff)
	}
	if first, err := c.Begin(t.Context(), noon, start); first || err != nil {
		t.Errorf("one that has a position began: %v, %v", first, err)
	}
	s = &shelf{}
	s.before = func() { s.line = line(at(1, 4), 4) }
	c, _ = consumer(s)
	if first, err := c.Begin(t.Context(), noon, start); first || err != nil {
		t.Errorf("one whom another process was faster with began: %v, %v", first, err)
	}
	c.Name = ""
	if _, err := c.Begin(t.Context(), noon, start); err == nil {
		t.Error("a consumer without a name began")
	}
}

func TestRescan(t *testing.T) {
	lost := Line{Stored: true, Text: "x", Mark: &noon}
	s := &shelf{line: lost}
	c, _ := consumer(s)
	if err := c.Rescan(t.Context(), lost, at(2, 0), Unreadable); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(Line{Stored: true, Text: PositionText(at(2, 0)), Mark: &noon}, s.line); diff != "" {
		t.Errorf("the rescan begins at (-want +got):\n%s", diff)
	}
	if err := c.Rescan(t.Context(), lost, at(3, 0), Unreadable); err == nil {
		t.Error("a position that another process has changed was taken for lost")
	}
}

// TestIdle: how far a feed has looked is stored now and then, and never before
// what was delivered is committed.
func TestIdle(t *testing.T) {
	c, clock := consumer(&shelf{})
	step := func(d time.Duration, want bool) {
		t.Helper()
		clock.Step(d)
		if got := c.Idle(); got != want {
			t.Errorf("%v after noon: %v, want %v", clock.Since(noon), got, want)
		}
	}
	step(0, false)
	step(idleCheckpointInterval-1, false)
	step(1, true)
	step(1, false)
	text := c.Deliver(at(1, 1), noon)
	step(idleCheckpointInterval, false)
	if err := c.Commit(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	step(0, true)
}

func TestBury(t *testing.T) {
	s := &shelf{}
	c, _ := consumer(s)
	if err := c.Bury(t.Context(), Document{ID: "r", Body: []byte("?"), Why: errors.New("broken")}); err != nil {
		t.Fatal(err)
	}
	want := store.DeadLetter{ID: "r", Source: "feed of c", Reason: "broken", Body: []byte("?"), At: noon}
	if diff := cmp.Diff(want, s.letter); diff != "" {
		t.Errorf("the dead letter (-want +got):\n%s", diff)
	}
}
