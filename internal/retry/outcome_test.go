package retry_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/retry"
)

func TestPredicates(t *testing.T) {
	tests := []struct {
		name    string
		err     error
		want    string // wait, park or other
		after   time.Duration
		why     string
		message string
	}{
		{"wait", retry.Wait(time.Second, "cache is cold"), "wait", time.Second, "cache is cold", "cache is cold (retrying in 1s, position held)"},
		{"wait is cut to a minute", retry.Wait(time.Hour, "x"), "wait", time.Minute, "x", "x (retrying in 1m0s, position held)"},
		{"wait is never negative", retry.Wait(-time.Hour, "x"), "wait", 0, "x", "x (retrying in 0s, position held)"},
		{"park keeps its time", retry.Park(time.Hour, "drain runs"), "park", time.Hour, "drain runs", "drain runs (parked, retrying in 1h0m0s)"},
		{"wrapped park", fmt.Errorf("handling n: %w", retry.Park(time.Second, "p")), "park", time.Second, "p", "handling n: p (parked, retrying in 1s)"},
		{"other", io.EOF, "other", 0, "", "EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, after, why := classify(tt.err)
			if got != tt.want || after != tt.after || why != tt.why {
				t.Errorf("got %s %s %q, want %s %s %q", got, after, why, tt.want, tt.after, tt.why)
			}
			if tt.err.Error() != tt.message {
				t.Errorf("message %q, want %q", tt.err.Error(), tt.message)
			}
		})
	}
}

func TestALostRaceIsTriedAgainSoon(t *testing.T) {
	again := map[time.Duration]bool{}
	for range 100 {
		kind, after, why := classify(retry.Race("node n changed by another client"))
		if kind != "wait" || after >= time.Second || why != "node n changed by another client" {
			t.Fatalf("got %s %s %q, want a short wait", kind, after, why)
		}
		again[after] = true
	}
	if len(again) < 2 {
		t.Errorf("all losers come again after %v", again)
	}
}

func classify(err error) (kind string, after time.Duration, why string) {
	if d, w, ok := retry.AsWait(err); ok {
		return "wait", d, w
	}
	if d, w, ok := retry.AsPark(err); ok {
		return "park", d, w
	}
	return "other", 0, ""
}
