package gcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"cloud.google.com/go/auth"
	"google.golang.org/api/googleapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// retryAfter is how long Compute Engine is left alone that says it was asked too
// often: its quotas of requests are by the minute.
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

// answered translates what Compute Engine said, or that it said nothing, into an
// answer to the janitor. Only what certainly was not done is said not to be.
func answered(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*unsigned](err); ok {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	if said, ok := errors.AsType[*googleapi.Error](err); ok {
		if m := meaning(said); m != codes.ResourceExhausted {
			return status.Error(m, err.Error())
		}
		return plugin.RetryLater(retryAfter, err.Error())
	}
	switch {
	case unsent(err):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}

// unsent says whether there was no connection for the request.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	return ok && op.Op == "dial" || unknown
}

// unsigned is that there is no token, so that no request was sent.
type unsigned struct{ cause error }

func (u *unsigned) Error() string { return fmt.Sprintf("getting a token: %v", u.cause) }

// signer gets tokens and marks that it got none.
type signer struct{ auth.TokenProvider }

func (s signer) Token(ctx context.Context) (*auth.Token, error) {
	token, err := s.TokenProvider.Token(ctx)
	if err != nil {
		return nil, &unsigned{err}
	}
	return token, nil
}
