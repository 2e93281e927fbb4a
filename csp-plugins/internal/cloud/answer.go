package cloud

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

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
