package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"google.golang.org/grpc/codes"

	csp "github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// retryAfter is how long Azure is left alone after it reports that it was asked too
// often, where it names no delay of its own; longest is the longest delay that is passed
// on.
const (
	retryAfter = 30 * time.Second
	longest    = 10 * time.Minute
)

// meanings of Azure's error codes; one that is not here ends no repair, among them
// OperationNotAllowed, which is of quotas, of states that pass and of those that do not
// (sources:
// "Troubleshoot common Azure deployment errors",
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors,
// and "Understand common error messages when you manage virtual machines",
// https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/error-messages).
var meanings = map[string]codes.Code{
	"ResourceNotFound": codes.NotFound, "ResourceGroupNotFound": codes.NotFound, "ParentResourceNotFound": codes.NotFound, "InstanceIdNotFound": codes.NotFound,

	// Not the machine, but all that would know it is not there for the plugin.
	"SubscriptionNotFound": codes.PermissionDenied, "InvalidSubscriptionId": codes.PermissionDenied,

	// Another operation is at work.
	"AnotherOperationInProgress": codes.Aborted, "Conflict": codes.Aborted, "OperationPreempted": codes.Aborted, "ConflictingConcurrentWriteNotAllowed": codes.Aborted,

	"AuthorizationFailed": codes.PermissionDenied, "LinkedAuthorizationFailed": codes.PermissionDenied, "DenyAssignmentAuthorizationFailed": codes.PermissionDenied,

	"ScopeLocked": codes.FailedPrecondition, "RequestDisallowedByPolicy": codes.FailedPrecondition, "VMMarkedForDeletion": codes.FailedPrecondition,

	"InvalidParameter": codes.InvalidArgument, "InvalidRequestContent": codes.InvalidArgument, "InvalidRequestFormat": codes.InvalidArgument,
	"InvalidResourceType": codes.InvalidArgument, "InvalidApiVersionParameter": codes.InvalidArgument, "MissingApiVersionParameter": codes.InvalidArgument,
}

func meaning(respErr *azcore.ResponseError) codes.Code {
	byStatus := csp.Unlisted(respErr.StatusCode)
	if byStatus == codes.ResourceExhausted || byStatus == codes.Unauthenticated {
		return byStatus
	}
	known, ok := meanings[respErr.ErrorCode]
	switch {
	case ok:
		return known
	case respErr.ErrorCode == "":
		return codes.Unavailable // of something in between: it may have been done
	}
	return byStatus
}

// answered translates what Azure reported, or that it reported nothing, into an answer to
// the janitor. Only what was certainly not done is reported as not done.
func answered(err error) error {
	apiErr, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return csp.Answer(err, codes.OK, 0)
	}
	return csp.Answer(err, meaning(apiErr), delay(apiErr.RawResponse))
}

// delay is what Azure asks for.
func delay(r *http.Response) time.Duration {
	if r != nil {
		if seconds, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && seconds > 0 {
			return min(time.Duration(seconds)*time.Second, longest)
		}
	}
	return retryAfter
}

// signer gets tokens and marks that it got none.
type signer struct{ azcore.TokenCredential }

func (s signer) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := s.TokenCredential.GetToken(ctx, o)
	if err != nil {
		return token, &csp.Unsigned{Doing: "getting a token", Cause: err}
	}
	return token, nil
}
