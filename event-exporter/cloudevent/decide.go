package cloudevent

import (
	"net/http"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/internal/retry"
)

// Facts are what is known of one request.
type Facts struct {
	// Status of the HTTP answer; 0 if none came.
	Status int
	// RetryAfter is that header of the answer.
	RetryAfter string
	// Events is how many events the request carried.
	Events int
	// NoCredentials: nothing was sent, because no token or certificate could be
	// had.
	NoCredentials bool
	// Unencodable: nothing was sent, because an event cannot be put in a request.
	Unencodable bool
}

// Policy is what an operator sets.
type Policy struct {
	// Poison are the statuses that blame the event.
	Poison []int
	// LongestWish bounds what a receiver can ask for by Retry-After.
	LongestWish time.Duration
}

// Do is what happens next.
type Do string

// What can happen next.
const (
	// Done: every event of the request is delivered.
	Done Do = "Done"
	// Again: send the same again after a growing pause, without end.
	Again Do = "Again"
	// Pause: something is wrong with this service, not with the event: nothing
	// is sent for a while, and the service is not ready.
	Pause Do = "Pause"
	// Split: one of several events is at fault; send fewer to find it.
	Split Do = "Split"
	// Bury: the one event is at fault: it becomes a dead letter.
	Bury Do = "Bury"
)

// Reason is why.
type Reason string

// Reasons.
const (
	Accepted Reason = "Accepted"
	// NoAnswer: refused, reset, timed out.
	NoAnswer        Reason = "NoAnswer"
	ReceiverFailed  Reason = "ReceiverFailed"
	TooManyRequests Reason = "TooManyRequests"
	EventRefused    Reason = "EventRefused"
	BatchRefused    Reason = "BatchRefused"
	Unencodable     Reason = "Unencodable"
	// NoCredentials: the token endpoint or the files of the credentials.
	NoCredentials Reason = "NoCredentials"
	Unauthorized  Reason = "Unauthorized"
	// Misconfigured: a redirect, a path, method or content type that the receiver
	// does not serve.
	Misconfigured Reason = "Misconfigured"
)

// Verdict is the judgement of one request.
type Verdict struct {
	Do     Do
	Reason Reason
	// After is the least time until the next request; 0 leaves it to the caller.
	After time.Duration
	// Everyone: the pause is for every request, not only for these events.
	Everyone bool
}

// Decide judges one request.
func Decide(f Facts, p Policy, now time.Time) Verdict {
	after := p.retryAfter(f.RetryAfter, now)
	switch s := f.Status; {
	case f.Unencodable:
		return refused(f, Unencodable)
	case f.NoCredentials:
		return Verdict{Pause, NoCredentials, after, true}
	case s == 0:
		return Verdict{Again, NoAnswer, 0, false}
	case s >= 200 && s < 300:
		return Verdict{Do: Done, Reason: Accepted}
	case slices.Contains(p.Poison, s):
		return refused(f, EventRefused)
	case s == http.StatusTooManyRequests:
		return Verdict{Again, TooManyRequests, after, true}
	case s >= 500 || s == http.StatusRequestTimeout || s == http.StatusTooEarly:
		return Verdict{Again, ReceiverFailed, after, after > 0}
	case s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusProxyAuthRequired:
		return Verdict{Pause, Unauthorized, after, true}
	}
	return Verdict{Pause, Misconfigured, after, true}
}

// refused buries a single event, and looks for it among several.
func refused(f Facts, why Reason) Verdict {
	if f.Events > 1 {
		return Verdict{Do: Split, Reason: BatchRefused}
	}
	return Verdict{Do: Bury, Reason: why}
}

func (p Policy) retryAfter(header string, now time.Time) time.Duration {
	d, _ := retry.After(header, now)
	return min(d, p.LongestWish)
}
