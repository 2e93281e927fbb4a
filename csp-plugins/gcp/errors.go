package main

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/auth"
	"google.golang.org/api/googleapi"
	"google.golang.org/grpc/codes"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// retryAfter is how long Compute Engine is left alone after it reports that it was asked
// too often: its quotas of requests are by the minute.
const retryAfter = 30 * time.Second

// reasons of Compute Engine's errors; one that is not here ends no repair (source:
// "Troubleshooting API errors" of the Compute Engine documentation,
// https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-apis).
var reasons = map[string]codes.Code{
	"rateLimitExceeded": codes.ResourceExhausted, "userRateLimitExceeded": codes.ResourceExhausted, "quotaExceeded": codes.ResourceExhausted,
	"concurrentOperationQuotaExceeded": codes.ResourceExhausted,

	// Another operation is at work, or the instance is on its way or in use.
	"resourceNotReady": codes.Aborted, "operationInProgress": codes.Aborted, "resourceInUseByAnotherResource": codes.Aborted,

	"notFound": codes.NotFound,

	"forbidden": codes.PermissionDenied, "insufficientPermissions": codes.PermissionDenied, "accessNotConfigured": codes.PermissionDenied,

	"invalidResourceUsage": codes.FailedPrecondition, "conditionNotMet": codes.FailedPrecondition,

	"badRequest": codes.InvalidArgument, "invalid": codes.InvalidArgument, "invalidParameter": codes.InvalidArgument,
	"required": codes.InvalidArgument, "parseError": codes.InvalidArgument,
}

// meaning of an error of the API. One without a reason is of something in between,
// which knows no instances.
func meaning(e *googleapi.Error) codes.Code {
	for _, one := range e.Errors {
		if known, ok := reasons[one.Reason]; ok {
			return known
		}
	}
	byStatus := cloud.Unlisted(e.Code)
	if len(e.Errors) == 0 && byStatus == codes.Aborted {
		return codes.Unavailable // it may have been done
	}
	return byStatus
}

// answered translates what Compute Engine reported, or that it reported nothing, into an
// answer to the janitor. Only what was certainly not done is reported as not done.
func answered(err error) error {
	apiErr, ok := errors.AsType[*googleapi.Error](err)
	if !ok {
		return cloud.Answer(err, codes.OK, 0)
	}
	return cloud.Answer(err, meaning(apiErr), retryAfter)
}

// signer gets tokens and marks that it got none.
type signer struct{ auth.TokenProvider }

func (s signer) Token(ctx context.Context) (*auth.Token, error) {
	token, err := s.TokenProvider.Token(ctx)
	if err != nil {
		return nil, &cloud.Unsigned{Doing: "getting a token", Cause: err}
	}
	return token, nil
}
