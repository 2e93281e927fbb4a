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
	// Accepted: the receiver answered with a 2xx status, so every event of the request counts as delivered.
	// Action: none.
	Accepted Reason = "Accepted"
	// NoAnswer: no HTTP answer came, for example because the connection was refused or reset or the request timed
	// out. The exporter sends the same request again after a growing pause, without end. Action: check that the
	// receiver runs and that `endpoint` in `[exporter.sink]`, the network and `HTTPS_PROXY` lead to it.
	NoAnswer Reason = "NoResponse"
	// ReceiverFailed: the receiver answered with 408, 425 or a 5xx status. The exporter sends the same request
	// again after a growing pause, or after the time in `Retry-After`. Action: repair the receiver. If it answers
	// so to an event that it cannot read, add the status to `deadLetterStatusCodes`, so that such an event becomes a dead
	// letter.
	ReceiverFailed Reason = "ReceiverFailed"
	// TooManyRequests: the receiver answered with 429. Every request waits for the time in `Retry-After` (at most
	// `maxRetryAfter`), and then the same events are sent again. Action: raise the limit of the receiver, or lower
	// `workers` or `rateLimit` in `[exporter.backfill]`.
	TooManyRequests Reason = "TooManyRequests"
	// EventRefused: the receiver answered a request of one event with a status of `deadLetterStatusCodes` (400, 413 and 422
	// by default). The event becomes a dead letter and the next one is sent. Action: read the answer in the table
	// `dead_letters` (source `event-exporter`) and correct the receiver. The exporter does not send a dead letter
	// again.
	EventRefused Reason = "EventRefused"
	// BatchRefused: the receiver refused a request of several events with a status of `deadLetterStatusCodes`, or one of
	// the events cannot be encoded. The exporter sends smaller requests until it finds the event at fault, which
	// then becomes a dead letter. Action: none.
	BatchRefused Reason = "BatchRefused"
	// Unencodable: an event cannot be encoded as a CloudEvent, so it is not sent and becomes a dead letter.
	// Action: find the id of the record in the table `dead_letters` (source `event-exporter`) and report it as a
	// defect.
	Unencodable Reason = "EncodingFailed"
	// NoCredentials: no token or client certificate is available, because the token endpoint or the files of the
	// credentials failed. Nothing is sent for a while, the exporter is not ready, and no event becomes a dead
	// letter. Action: check `tokenURL` and `secretFile` in `[exporter.oidc]`, `tokenFile`, `certFile` and
	// `keyFile` in `[exporter.sink]`, and the Secret behind them.
	NoCredentials Reason = "NoCredentials"
	// Unauthorized: the receiver or a proxy answered with 401, 403 or 407. Nothing is sent for a while, the
	// exporter is not ready, and no event becomes a dead letter. Action: renew the credentials of the exporter, or
	// give its identity access to the receiver.
	Unauthorized Reason = "Unauthorized"
	// Misconfigured: the receiver answered with a redirect or another 4xx status, because it does not serve the
	// address, path, method or content type of the request. Nothing is sent for a while, the exporter is not
	// ready, and no event becomes a dead letter. Action: correct `endpoint`, `mode` and `batchSize` in
	// `[exporter.sink]`.
	Misconfigured Reason = "Misconfigured"
)

// Verdict is the decision about one request.
type Verdict struct {
	Do     Do
	Reason Reason
	// After is the least time until the next request; 0 leaves it to the caller.
	After time.Duration
	// Everyone: the pause is for every request, not only for these events.
	Everyone bool
}

// Decide evaluates the outcome of one request.
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
