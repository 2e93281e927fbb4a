package delivery

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Outcome is what becomes of a request after an answer.
type Outcome string

// Fates.
const (
	// Delivered: the receiver has it.
	Delivered Outcome = "Delivered"
	// Again: the same is sent again.
	Again Outcome = "Again"
	// Refused: sending it again changes nothing.
	Refused Outcome = "Refused"
)

// again are the statuses below 500 after which the same request may be taken.
var again = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// Judge says what an HTTP status means for a request. conflict is what a 409 means to
// the receiver.
func Judge(status int, conflict Outcome) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Delivered
	case status == http.StatusConflict:
		return conflict
	case status >= 500, slices.Contains(again, status):
		return Again
	}
	return Refused
}

// RetryAfter reads the header of that name (RFC 9110, section 10.2.3): seconds or a
// date. What is neither, or past, is no wait.
func RetryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if header != "" && strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.ParseInt(header, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64 // more than can be counted
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}
