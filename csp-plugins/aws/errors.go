package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// retryAfter is how long EC2 is left alone after it reports that it was asked too often:
// its buckets of requests refill within seconds.
const retryAfter = 15 * time.Second

// meanings of EC2's error codes; one that is not here ends no repair (source: the
// error codes of the Amazon EC2 API reference).
var meanings = map[string]codes.Code{
	"RequestLimitExceeded": codes.ResourceExhausted, "Throttling": codes.ResourceExhausted, "ThrottlingException": codes.ResourceExhausted,
	"RequestThrottled": codes.ResourceExhausted, "TooManyRequestsException": codes.ResourceExhausted, "Client.RequestLimitExceeded": codes.ResourceExhausted,
	"EC2ThrottledException": codes.ResourceExhausted,

	// Credentials that ran out or are not known yet are replaced.
	"RequestExpired": codes.Unauthenticated, "ExpiredToken": codes.Unauthenticated, "ExpiredTokenException": codes.Unauthenticated,
	"AuthFailure": codes.Unauthenticated, "InvalidClientTokenId": codes.Unauthenticated, "SignatureDoesNotMatch": codes.Unauthenticated,
	"MissingAuthenticationToken": codes.Unauthenticated, "IncompleteSignature": codes.Unauthenticated,

	"UnauthorizedOperation": codes.PermissionDenied, "OptInRequired": codes.PermissionDenied, "Blocked": codes.PermissionDenied,

	// The instance is on its way, or the account is being verified.
	"IncorrectInstanceState": codes.Aborted, "IncorrectState": codes.Aborted, "PendingVerification": codes.Aborted,

	"InvalidInstanceID.NotFound": codes.NotFound, "InvalidInstanceID.Malformed": codes.InvalidArgument, "InvalidInstanceID": codes.FailedPrecondition,
	"InvalidAction": codes.InvalidArgument, "NoSuchVersion": codes.InvalidArgument, "MalformedQueryString": codes.InvalidArgument,
	"InvalidParameter": codes.InvalidArgument, "InvalidParameterValue": codes.InvalidArgument, "InvalidParameterCombination": codes.InvalidArgument,
	"MissingParameter": codes.InvalidArgument, "UnknownParameter": codes.InvalidArgument, "ValidationError": codes.InvalidArgument,
	"OperationNotPermitted": codes.FailedPrecondition, "UnsupportedOperation": codes.FailedPrecondition,
}

// unknownErrorCode is the SDK's code of an answer that has none.
const unknownErrorCode = "UnknownError"

// code is EC2's error code; empty if EC2 gave none.
func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok && e.ErrorCode() != unknownErrorCode {
		return e.ErrorCode()
	}
	return ""
}

// answered translates what EC2 reported, or that it reported nothing, into an answer to
// the janitor. Only what was certainly not done is reported as not done.
func answered(err error) error {
	if err == nil {
		return nil
	}
	response, arrived := errors.AsType[*smithyhttp.ResponseError](err)
	meaning, known := meanings[code(err)]
	switch {
	case known && meaning == codes.ResourceExhausted, arrived && response.HTTPStatusCode() == http.StatusTooManyRequests:
		return plugin.RetryLater(retryAfter, err.Error())
	case known:
		return status.Error(meaning, err.Error())
	case arrived && code(err) != "":
		return status.Error(cloud.Unlisted(response.HTTPStatusCode()), err.Error())
	case cloud.Unsent(err):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case unsigned(err):
		return status.Error(codes.Unauthenticated, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}

// unsigned reports whether there were no credentials to sign the request with.
func unsigned(err error) bool {
	if _, ok := errors.AsType[*v4.SigningError](err); ok {
		return true
	}
	_, sent := errors.AsType[*smithyhttp.RequestSendError](err)
	_, arrived := errors.AsType[*smithyhttp.ResponseError](err)
	return !sent && !arrived
}
