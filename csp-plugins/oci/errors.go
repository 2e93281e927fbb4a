package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"google.golang.org/grpc/codes"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// retryAfter is how long OCI is left alone after it reports that it was asked too often.
const retryAfter = 30 * time.Second

// notAuthorizedOrNotFound is OCI's word for both.
const notAuthorizedOrNotFound = "NotAuthorizedOrNotFound"

// meanings of OCI's error codes; one that is not here ends no repair (source: "API
// Errors" of the OCI documentation,
// https://docs.oracle.com/iaas/Content/API/References/apierrors.htm).
var meanings = map[string]codes.Code{
	"TooManyRequests": codes.ResourceExhausted,

	"NotAuthenticated": codes.Unauthenticated,

	// The two cannot be distinguished: not NotFound, which would mean for certain that
	// there is no such machine.
	notAuthorizedOrNotFound: codes.PermissionDenied, "NotAuthorized": codes.PermissionDenied, "SignUpRequired": codes.PermissionDenied,
	"RelatedResourceNotAuthorizedOrNotFound": codes.PermissionDenied,

	// Another action is at work, or the instance is on its way.
	"IncorrectState": codes.Aborted, "Conflict": codes.Aborted, "ExternalServerIncorrectState": codes.Aborted, "NoEtagMatch": codes.Aborted,

	// The token was used for something that took effect, and something came after it.
	"InvalidatedRetryToken": codes.Unavailable,

	"LimitExceeded": codes.FailedPrecondition, "QuotaExceeded": codes.FailedPrecondition,

	"CannotParseRequest": codes.InvalidArgument, "InvalidParameter": codes.InvalidArgument, "MissingParameter": codes.InvalidArgument,
	"MethodNotAllowed": codes.InvalidArgument,
}

// code is OCI's error code; empty if OCI gave none.
func code(err error) string {
	if apiErr, ok := serviceError(err); ok {
		return apiErr.GetCode()
	}
	return ""
}

// serviceError is OCI's error, if it gave one.
func serviceError(err error) (what common.ServiceError, ok bool) {
	ok = errors.As(err, &what)
	return what, ok
}

// unparsed is the SDK's code of an answer that is not OCI's.
const unparsed = "BadErrorResponse"

func meaning(what common.ServiceError) codes.Code {
	known, ok := meanings[what.GetCode()]
	byStatus := cloud.Unlisted(what.GetHTTPStatusCode())
	switch {
	case ok:
		return known
	case (what.GetCode() == unparsed || what.GetCode() == "") && byStatus == codes.Aborted:
		return codes.Unavailable // of something in between: it may have been done
	}
	return byStatus
}

// answered translates what OCI reported, or that it reported nothing, into an answer to
// the janitor. Only what was certainly not done is reported as not done.
func answered(err error) error {
	what, ok := serviceError(err)
	if !ok {
		return cloud.Answer(err, codes.OK, 0)
	}
	return cloud.Answer(err, meaning(what), retryAfter)
}

// signer marks what it could not sign.
type signer struct{ common.HTTPRequestSigner }

func (s signer) Sign(r *http.Request) error {
	if err := s.HTTPRequestSigner.Sign(r); err != nil {
		return &cloud.Unsigned{Doing: "signing a request", Cause: err}
	}
	return nil
}
