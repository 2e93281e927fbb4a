package answer_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/event-exporter/answer"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestDecide(t *testing.T) {
	policy := answer.Policy{Poison: []int{400, 413, 422}, LongestWish: time.Hour}
	tests := []struct {
		name  string
		facts answer.Facts
		want  answer.Verdict
	}{
		{"200", answer.Facts{Status: 200}, answer.Verdict{Do: answer.Done, Reason: answer.Accepted}},
		{"202", answer.Facts{Status: 202, Events: 7}, answer.Verdict{Do: answer.Done, Reason: answer.Accepted}},
		{"204 with a wish", answer.Facts{Status: 204, RetryAfter: "9"}, answer.Verdict{Do: answer.Done, Reason: answer.Accepted}},
		{"no answer", answer.Facts{}, answer.Verdict{Do: answer.Again, Reason: answer.NoAnswer}},
		{"429", answer.Facts{Status: 429}, answer.Verdict{Do: answer.Again, Reason: answer.TooManyRequests, Everyone: true}},
		{"429 with a wish", answer.Facts{Status: 429, RetryAfter: "7"}, answer.Verdict{Do: answer.Again, Reason: answer.TooManyRequests, After: 7 * time.Second, Everyone: true}},
		{"429 with a long wish", answer.Facts{Status: 429, RetryAfter: "86400"}, answer.Verdict{Do: answer.Again, Reason: answer.TooManyRequests, After: time.Hour, Everyone: true}},
		{"429 with nonsense", answer.Facts{Status: 429, RetryAfter: "soon"}, answer.Verdict{Do: answer.Again, Reason: answer.TooManyRequests, Everyone: true}},
		{"408", answer.Facts{Status: 408}, answer.Verdict{Do: answer.Again, Reason: answer.ReceiverFailed}},
		{"425", answer.Facts{Status: 425}, answer.Verdict{Do: answer.Again, Reason: answer.ReceiverFailed}},
		{"500", answer.Facts{Status: 500, Events: 3}, answer.Verdict{Do: answer.Again, Reason: answer.ReceiverFailed}},
		{"503 until a date", answer.Facts{Status: 503, RetryAfter: now.Add(time.Minute).Format(http.TimeFormat)}, answer.Verdict{Do: answer.Again, Reason: answer.ReceiverFailed, After: time.Minute, Everyone: true}},
		{"599", answer.Facts{Status: 599}, answer.Verdict{Do: answer.Again, Reason: answer.ReceiverFailed}},
		{"400", answer.Facts{Status: 400, Events: 1}, answer.Verdict{Do: answer.Bury, Reason: answer.EventRefused}},
		{"413 of several", answer.Facts{Status: 413, Events: 2}, answer.Verdict{Do: answer.Split, Reason: answer.BatchRefused}},
		{"422", answer.Facts{Status: 422, Events: 1}, answer.Verdict{Do: answer.Bury, Reason: answer.EventRefused}},
		{"unencodable", answer.Facts{Unencodable: true, Events: 1}, answer.Verdict{Do: answer.Bury, Reason: answer.Unencodable}},
		{"one of several unencodable", answer.Facts{Unencodable: true, Events: 2}, answer.Verdict{Do: answer.Split, Reason: answer.BatchRefused}},
		{"401", answer.Facts{Status: 401, Events: 1}, answer.Verdict{Do: answer.Pause, Reason: answer.Unauthorized, Everyone: true}},
		{"403 with a wish", answer.Facts{Status: 403, RetryAfter: "60"}, answer.Verdict{Do: answer.Pause, Reason: answer.Unauthorized, After: time.Minute, Everyone: true}},
		{"407", answer.Facts{Status: 407}, answer.Verdict{Do: answer.Pause, Reason: answer.Unauthorized, Everyone: true}},
		{"no credentials", answer.Facts{NoCredentials: true}, answer.Verdict{Do: answer.Pause, Reason: answer.NoCredentials, Everyone: true}},
		{"301", answer.Facts{Status: 301}, answer.Verdict{Do: answer.Pause, Reason: answer.Misconfigured, Everyone: true}},
		{"404", answer.Facts{Status: 404, Events: 1}, answer.Verdict{Do: answer.Pause, Reason: answer.Misconfigured, Everyone: true}},
		{"415", answer.Facts{Status: 415}, answer.Verdict{Do: answer.Pause, Reason: answer.Misconfigured, Everyone: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := answer.Decide(tt.facts, policy, now); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestNothingIsLostByAVerdict looks at every status: only success settles an
// event, only what the policy names buries one.
func TestNothingIsLostByAVerdict(t *testing.T) {
	policy := answer.Policy{Poison: []int{400, 500}}
	for status := range 1000 {
		v := answer.Decide(answer.Facts{Status: status, Events: 1}, policy, now)
		if (v.Do == answer.Done) != (status >= 200 && status < 300) {
			t.Errorf("status %d: %s", status, v.Do)
		}
		if (v.Do == answer.Bury) != (status == 400 || status == 500) {
			t.Errorf("status %d: %s", status, v.Do)
		}
		if v.Do == answer.Split || v.Reason == "" {
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
		if got, ok := answer.RetryAfter(tt.header, now); got != tt.want || ok != tt.ok {
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
	policy := answer.Policy{LongestWish: time.Hour}
	f.Fuzz(func(t *testing.T, header string) {
		d, ok := answer.RetryAfter(header, now)
		if d < 0 || (!ok && d != 0) {
			t.Errorf("%q: %s, %v", header, d, ok)
		}
		for _, status := range []int{401, 404, 429, 500} {
			v := answer.Decide(answer.Facts{Status: status, RetryAfter: header, Events: 1}, policy, now)
			if v.After < 0 || v.After > time.Hour || v.Do == answer.Done || v.Do == answer.Bury {
				t.Errorf("%q with %d: %+v", header, status, v)
			}
		}
	})
}
