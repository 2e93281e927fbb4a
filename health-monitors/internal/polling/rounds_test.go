package polling_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/internal/polling"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestTheFirstFailureOfARowAndItsEndAreLogged: each failure is passed to Failed, and
// readiness is that of the last poll.
func TestTheFirstFailureOfARowAndItsEndAreLogged(t *testing.T) {
	var failure error
	var log bytes.Buffer
	var failed []bool
	r := &polling.Rounds{
		Poll: func(context.Context) error { return failure }, Clock: testkit.NewClock(), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Fails: "fails", Works: "works", NotYet: "not yet", Failed: func(another bool) { failed = append(failed, another) },
	}
	expect := func(want string) {
		t.Helper()
		if ok, why := r.Ready(); ok != (want == "") || why != want {
			t.Errorf("ready %t, %q, want %q", ok, why, want)
		}
	}
	expect("not yet")
	for _, text := range []string{"a", "a", "b", "", "", "b"} {
		if failure = nil; text != "" {
			failure = errors.New(text)
		}
		r.Once(t.Context())
		expect(text)
	}
	if diff := cmp.Diff([]bool{true, false, true, true}, failed); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(line, "level=")
		got = append(got, strings.TrimSpace(line))
	}
	want := []string{"WARN msg=fails error=a", "WARN msg=fails error=b", "INFO msg=works", "WARN msg=fails error=b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestRunPollsImmediatelyAndAtEachTick: until its context ends, which is no failure.
func TestRunPollsImmediatelyAndAtEachTick(t *testing.T) {
	clock, looks := testkit.NewClock(), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	r := &polling.Rounds{
		Poll:     func(ctx context.Context) error { looks <- struct{}{}; <-looks; return ctx.Err() },
		Interval: time.Minute, Clock: clock, Log: slog.New(slog.DiscardHandler),
		Failed: func(bool) { t.Error("a look failed") },
	}
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	for range 3 {
		<-looks
		clock.Step(time.Minute)
		looks <- struct{}{}
	}
	<-looks
	cancel()
	looks <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if ok, why := r.Ready(); !ok {
		t.Errorf("not ready after looks that went well: %s", why)
	}
}

// TestHangingPollIsNotReady: a poll that hangs is not ready until it ends, also after failed polls.
func TestHangingPollIsNotReady(t *testing.T) {
	for name, c := range map[string]struct{ longest, interval, bound time.Duration }{
		"set": {time.Minute, time.Second, time.Minute}, "by the interval": {time.Minute, time.Minute, 3 * time.Minute}, "by default": {0, time.Minute, 10 * time.Minute},
	} {
		clock, looks := testkit.NewClock(), make(chan struct{})
		r := &polling.Rounds{
			Poll:    func(context.Context) error { looks <- struct{}{}; <-looks; return nil },
			Longest: c.longest, Interval: c.interval, Clock: clock, Log: slog.New(slog.DiscardHandler), NotYet: "not yet",
		}
		done := make(chan struct{})
		go func() { r.Once(t.Context()); close(done) }()
		<-looks
		clock.Step(c.bound)
		if _, why := r.Ready(); why != "not yet" {
			t.Errorf("%s: %q within the bound", name, why)
		}
		clock.Step(time.Second)
		if ok, why := r.Ready(); ok || why != "a poll has been running for "+(c.bound+time.Second).String() {
			t.Errorf("%s: ready %t, %q", name, ok, why)
		}
		looks <- struct{}{}
		<-done
		if ok, why := r.Ready(); !ok {
			t.Errorf("%s: not ready after the look: %s", name, why)
		}
	}
}
