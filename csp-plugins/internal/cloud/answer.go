package cloud

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
)

// Answer translates what a provider reported, or that it reported nothing, into an answer
// to the janitor. answer is the meaning of the provider's own error, codes.OK where it
// gave none: then only what was certainly not done is reported as not done. pause is how
// long a provider is left alone after it reports that it was asked too often.
func Answer(err error, answer codes.Code, pause time.Duration) error {
	broken, network := errors.AsType[net.Error](err)
	_, unsigned := errors.AsType[*Unsigned](err)
	switch {
	case err == nil:
		return nil
	case unsigned:
		answer = codes.Unauthenticated
	case answer == codes.ResourceExhausted:
		return plugin.RetryLater(pause, err.Error())
	case answer != codes.OK:
	case Unsent(err):
		answer = codes.Aborted
	case errors.Is(err, context.DeadlineExceeded), network && broken.Timeout():
		answer = codes.DeadlineExceeded
	default:
		answer = codes.Unavailable
	}
	return status.Error(answer, err.Error())
}

// Unsigned is that a request could not be signed, or that there is no token for it, so that
// it was not sent.
type Unsigned struct {
	// Doing is what failed: getting a token.
	Doing string
	Cause error
}

func (u *Unsigned) Error() string { return u.Doing + ": " + u.Cause.Error() }

// Unsent reports whether there was no connection for the request.
func Unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	return ok && op.Op == "dial" || unknown
}

// Unlisted is the meaning of an answer that the provider itself gave and whose error
// code a plugin does not know. Its HTTP status alone is never a refusal for good: a
// provider adds codes, and answers "not now" with 400, 403 and 409 too. Below 500 the
// request was not carried out (RFC 9110, 15.5); from there on, and with 408, it may
// have been.
func Unlisted(status int) codes.Code {
	switch {
	case status == http.StatusUnauthorized:
		return codes.Unauthenticated
	case status == http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case status == http.StatusRequestTimeout:
		return codes.Unavailable
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		return codes.Aborted
	}
	return codes.Unavailable
}
