package retry_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/retry"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAfter(t *testing.T) {
	tests := []struct {
		header string
		want   time.Duration
		ok     bool
	}{
		{"", 0, false},
		{" ", 0, false},
		{"0", 0, true},
		{" 120 ", 2 * time.Minute, true},
		{"007", 7 * time.Second, true},
		{"99999999999999999999", math.MaxInt64, true},
		{"9223372037", math.MaxInt64, true},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1.5", 0, false},
		{"1e3", 0, false},
		{"Fri, 02 Jan 2026 03:05:05 GMT", time.Minute, true},
		{"Friday, 02-Jan-26 03:05:05 GMT", time.Minute, true},
		{"Fri, 02 Jan 2026 03:03:05 GMT", 0, true},
		{"2026-01-02T03:05:05Z", 0, false},
	}
	for _, tt := range tests {
		if got, ok := retry.After(tt.header, now); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %s, %v; want %s, %v", tt.header, got, ok, tt.want, tt.ok)
		}
	}
}

func TestAfterWithoutWait(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "soon": 0, "-3": 0, "1.5": 0, "99999999999999999999": math.MaxInt64,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got, _ := retry.After(header, now); got != want {
			t.Errorf("%q is %s, want %s", header, got, want)
		}
	}
}
