package cloudevent_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/internal/retry"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestDecide(t *testing.T) {
	policy := cloudevent.Policy{Poison: []int{400, 413, 422}, LongestWish: time.Hour}
	tests := []struct {
		name  string
		facts cloudevent.Facts
		want  cloudevent.Verdict
	}{
		{"200", cloudevent.Facts{Status: 200}, cloudevent.Verdict{Do: cloudevent.Done, Reason: cloudevent.Accepted}},
		{"202", cloudevent.Facts{Status: 202, Events: 7}, cloudevent.Verdict{Do: cloudevent.Done, Reason: cloudevent.Accepted}},
		{"204 with a wish", cloudevent.Facts{Status: 204, RetryAfter: "9"}, cloudevent.Verdict{Do: cloudevent.Done, Reason: cloudevent.Accepted}},
		{"no answer", cloudevent.Facts{}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.NoAnswer}},
		{"429", cloudevent.Facts{Status: 429}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.TooManyRequests, Everyone: true}},
		{"429 with a wish", cloudevent.Facts{Status: 429, RetryAfter: "7"}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.TooManyRequests, After: 7 * time.Second, Everyone: true}},
		{"429 with a long wish", cloudevent.Facts{Status: 429, RetryAfter: "86400"}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.TooManyRequests, After: time.Hour, Everyone: true}},
		{"429 with nonsense", cloudevent.Facts{Status: 429, RetryAfter: "soon"}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.TooManyRequests, Everyone: true}},
		{"408", cloudevent.Facts{Status: 408}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.ReceiverFailed}},
		{"425", cloudevent.Facts{Status: 425}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.ReceiverFailed}},
		{"500", cloudevent.Facts{Status: 500, Events: 3}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.ReceiverFailed}},
		{"503 until a date", cloudevent.Facts{Status: 503, RetryAfter: now.Add(time.Minute).Format(http.TimeFormat)}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.ReceiverFailed, After: time.Minute, Everyone: true}},
		{"599", cloudevent.Facts{Status: 599}, cloudevent.Verdict{Do: cloudevent.Again, Reason: cloudevent.ReceiverFailed}},
		{"400", cloudevent.Facts{Status: 400, Events: 1}, cloudevent.Verdict{Do: cloudevent.Bury, Reason: cloudevent.EventRefused}},
		{"413 of several", cloudevent.Facts{Status: 413, Events: 2}, cloudevent.Verdict{Do: cloudevent.Split, Reason: cloudevent.BatchRefused}},
		{"422", cloudevent.Facts{Status: 422, Events: 1}, cloudevent.Verdict{Do: cloudevent.Bury, Reason: cloudevent.EventRefused}},
		{"unencodable", cloudevent.Facts{Unencodable: true, Events: 1}, cloudevent.Verdict{Do: cloudevent.Bury, Reason: cloudevent.Unencodable}},
		{"one of several unencodable", cloudevent.Facts{Unencodable: true, Events: 2}, cloudevent.Verdict{Do: cloudevent.Split, Reason: cloudevent.BatchRefused}},
		{"401", cloudevent.Facts{Status: 401, Events: 1}, cloudevent.Verdict{Do: cloudevent.Pause, Reason: cloudevent.Unauthorized, Everyone: true}},
		{"403 with a wish", cloudevent.Facts{Status: 403, RetryAfter: "60"}, cloudevent.Verdict{Do: cloudevent.Pause, Reason: cloudevent.Unauthorized, After: time.Minute, Everyone: true}},
		{"407", cloudevent.Facts{Status: 407}, cloudevent.Verdict{Do: cloudevent.Pause, Reason: cloudevent.Unauthorized, Everyone: true}},
		{"no credentials", cloudevent.Facts{NoCredentials: true}, cloudevent.Verdict{Do: cloudevent.Pause, Reason: cloudevent.NoCredentials, Everyone: true}},
		{"301", cloudevent.Facts{Status: 301}, cloudevent.Verdict{Do: cloudevent.Pause, Reason: cloudevent.Misconfigured, Everyone: true}},
		{"404", cloudevent.Facts{Status: 404, Events: 1}, cloudevent.Verdict{Do: cloudevent.Pause, Reason: cloudevent.Misconfigured, Everyone: true}},
		{"415", cloudevent.Facts{Status: 415}, cloudevent.Verdict{Do: cloudevent.Pause, Reason: cloudevent.Misconfigured, Everyone: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := cloudevent.Decide(tt.facts, policy, now); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestNothingIsLostByAVerdict looks at every status: only success settles an
// event, only what the policy names buries one.
func TestNothingIsLostByAVerdict(t *testing.T) {
	policy := cloudevent.Policy{Poison: []int{400, 500}}
	for status := range 1000 {
		v := cloudevent.Decide(cloudevent.Facts{Status: status, Events: 1}, policy, now)
		if (v.Do == cloudevent.Done) != (status >= 200 && status < 300) {
			t.Errorf("status %d: %s", status, v.Do)
		}
		if (v.Do == cloudevent.Bury) != (status == 400 || status == 500) {
			t.Errorf("status %d: %s", status, v.Do)
		}
		if v.Do == cloudevent.Split || v.Reason == "" {
			t.Errorf("status %d: %+v", status, v)
		}
	}
}

// FuzzRetryAfter: whatever a receiver writes, the pause is neither negative nor
// longer than the policy admits.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "99999999999999999999", "Fri, 02 Jan 2026 03:05:05 GMT", "-5", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(seed)
	}
	policy := cloudevent.Policy{LongestWish: time.Hour}
	f.Fuzz(func(t *testing.T, header string) {
		d, ok := retry.After(header, now)
		if d < 0 || (!ok && d != 0) {
			t.Errorf("%q: %s, %v", header, d, ok)
		}
		for _, status := range []int{401, 404, 429, 500} {
			v := cloudevent.Decide(cloudevent.Facts{Status: status, RetryAfter: header, Events: 1}, policy, now)
			if v.After < 0 || v.After > time.Hour || v.Do == cloudevent.Done || v.Do == cloudevent.Bury {
				t.Errorf("%q with %d: %+v", header, status, v)
			}
		}
	})
}
