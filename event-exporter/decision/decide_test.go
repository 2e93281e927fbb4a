package decision_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/event-exporter/decision"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestDecide(t *testing.T) {
	policy := decision.Policy{Poison: []int{400, 413, 422}, LongestWish: time.Hour}
	tests := []struct {
		name  string
		facts decision.Facts
		want  decision.Verdict
	}{
		{"200", decision.Facts{Status: 200}, decision.Verdict{Do: decision.Done, Reason: decision.Accepted}},
		{"202", decision.Facts{Status: 202, Events: 7}, decision.Verdict{Do: decision.Done, Reason: decision.Accepted}},
		{"204 with a wish", decision.Facts{Status: 204, RetryAfter: "9"}, decision.Verdict{Do: decision.Done, Reason: decision.Accepted}},
		{"no answer", decision.Facts{}, decision.Verdict{Do: decision.Again, Reason: decision.NoAnswer}},
		{"429", decision.Facts{Status: 429}, decision.Verdict{Do: decision.Again, Reason: decision.TooManyRequests, Everyone: true}},
		{"429 with a wish", decision.Facts{Status: 429, RetryAfter: "7"}, decision.Verdict{Do: decision.Again, Reason: decision.TooManyRequests, After: 7 * time.Second, Everyone: true}},
		{"429 with a long wish", decision.Facts{Status: 429, RetryAfter: "86400"}, decision.Verdict{Do: decision.Again, Reason: decision.TooManyRequests, After: time.Hour, Everyone: true}},
		{"429 with nonsense", decision.Facts{Status: 429, RetryAfter: "soon"}, decision.Verdict{Do: decision.Again, Reason: decision.TooManyRequests, Everyone: true}},
		{"408", decision.Facts{Status: 408}, decision.Verdict{Do: decision.Again, Reason: decision.ReceiverFailed}},
		{"425", decision.Facts{Status: 425}, decision.Verdict{Do: decision.Again, Reason: decision.ReceiverFailed}},
		{"500", decision.Facts{Status: 500, Events: 3}, decision.Verdict{Do: decision.Again, Reason: decision.ReceiverFailed}},
		{"503 until a date", decision.Facts{Status: 503, RetryAfter: now.Add(time.Minute).Format(http.TimeFormat)}, decision.Verdict{Do: decision.Again, Reason: decision.ReceiverFailed, After: time.Minute, Everyone: true}},
		{"599", decision.Facts{Status: 599}, decision.Verdict{Do: decision.Again, Reason: decision.ReceiverFailed}},
		{"400", decision.Facts{Status: 400, Events: 1}, decision.Verdict{Do: decision.Bury, Reason: decision.EventRefused}},
		{"413 of several", decision.Facts{Status: 413, Events: 2}, decision.Verdict{Do: decision.Split, Reason: decision.BatchRefused}},
		{"422", decision.Facts{Status: 422, Events: 1}, decision.Verdict{Do: decision.Bury, Reason: decision.EventRefused}},
		{"unencodable", decision.Facts{Unencodable: true, Events: 1}, decision.Verdict{Do: decision.Bury, Reason: decision.Unencodable}},
		{"one of several unencodable", decision.Facts{Unencodable: true, Events: 2}, decision.Verdict{Do: decision.Split, Reason: decision.BatchRefused}},
		{"401", decision.Facts{Status: 401, Events: 1}, decision.Verdict{Do: decision.Pause, Reason: decision.Unauthorized, Everyone: true}},
		{"403 with a wish", decision.Facts{Status: 403, RetryAfter: "60"}, decision.Verdict{Do: decision.Pause, Reason: decision.Unauthorized, After: time.Minute, Everyone: true}},
		{"407", decision.Facts{Status: 407}, decision.Verdict{Do: decision.Pause, Reason: decision.Unauthorized, Everyone: true}},
		{"no credentials", decision.Facts{NoCredentials: true}, decision.Verdict{Do: decision.Pause, Reason: decision.NoCredentials, Everyone: true}},
		{"301", decision.Facts{Status: 301}, decision.Verdict{Do: decision.Pause, Reason: decision.Misconfigured, Everyone: true}},
		{"404", decision.Facts{Status: 404, Events: 1}, decision.Verdict{Do: decision.Pause, Reason: decision.Misconfigured, Everyone: true}},
		{"415", decision.Facts{Status: 415}, decision.Verdict{Do: decision.Pause, Reason: decision.Misconfigured, Everyone: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := decision.Decide(tt.facts, policy, now); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestNothingIsLostByAVerdict looks at every status: only success settles an
// event, only what the policy names buries one.
func TestNothingIsLostByAVerdict(t *testing.T) {
	policy := decision.Policy{Poison: []int{400, 500}}
	for status := range 1000 {
		v := decision.Decide(decision.Facts{Status: status, Events: 1}, policy, now)
		if (v.Do == decision.Done) != (status >= 200 && status < 300) {
			t.Errorf("status %d: %s", status, v.Do)
		}
		if (v.Do == decision.Bury) != (status == 400 || status == 500) {
			t.Errorf("status %d: %s", status, v.Do)
		}
		if v.Do == decision.Split || v.Reason == "" {
			t.Errorf("status %d: %+v", status, v)
		}
	}
}

func TestRetryAfter(t *testing.T) {
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
		if got, ok := decision.RetryAfter(tt.header, now); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %s, %v; want %s, %v", tt.header, got, ok, tt.want, tt.ok)
		}
	}
}

// FuzzRetryAfter: whatever a receiver writes, the pause is neither negative nor
// longer than the policy admits.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "99999999999999999999", "Fri, 02 Jan 2026 03:05:05 GMT", "-5", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(seed)
	}
	policy := decision.Policy{LongestWish: time.Hour}
	f.Fuzz(func(t *testing.T, header string) {
		d, ok := decision.RetryAfter(header, now)
		if d < 0 || (!ok && d != 0) {
			t.Errorf("%q: %s, %v", header, d, ok)
		}
		for _, status := range []int{401, 404, 429, 500} {
			v := decision.Decide(decision.Facts{Status: status, RetryAfter: header, Events: 1}, policy, now)
			if v.After < 0 || v.After > time.Hour || v.Do == decision.Done || v.Do == decision.Bury {
				t.Errorf("%q with %d: %+v", header, status, v)
			}
		}
	})
}
