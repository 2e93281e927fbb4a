package redfish

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/janitor/protos/plugin"
)

// retryAfter is how long a BMC is left alone that has too much to do.
const retryAfter = 15 * time.Second

// messages are those of the Base registry of Redfish that say what was done,
// without the registry's name and version (source: DMTF DSP8011, Base message
// registry). What is not here is known by its HTTP status.
var messages = map[string]codes.Code{
	"ServiceTemporarilyUnavailable": codes.ResourceExhausted, "SessionLimitExceeded": codes.ResourceExhausted,
	"ResourceInUse": codes.Aborted, "ServiceInUnknownState": codes.Aborted, "ServiceShuttingDown": codes.Aborted, "ResourceInStandby": codes.Aborted,
	"NoValidSession": codes.Unauthenticated, "ResourceAtUriUnauthorized": codes.Unauthenticated,
	"InsufficientPrivilege": codes.PermissionDenied, "AccessDenied": codes.PermissionDenied,
	"ActionNotSupported": codes.FailedPrecondition, "ActionParameterNotSupported": codes.FailedPrecondition,
	"ActionParameterValueNotInList": codes.FailedPrecondition, "ActionParameterValueFormatError": codes.FailedPrecondition,
	"ActionParameterUnknown": codes.FailedPrecondition, "OperationNotAllowed": codes.FailedPrecondition,
}

// statuses are the meanings of HTTP statuses (source: DSP0266, status codes).
// The others below 500 refuse for good, those from 500 on leave open what was
// done.
var statuses = map[int]codes.Code{
	http.StatusTooManyRequests: codes.ResourceExhausted,
	http.StatusUnauthorized:    codes.Unauthenticated,
	http.StatusForbidden:       codes.PermissionDenied,
	// A BMC that starts knows its systems only later.
	http.StatusNotFound: codes.Aborted, http.StatusGone: codes.Aborted, http.StatusConflict: codes.Aborted, http.StatusPreconditionFailed: codes.Aborted,
	http.StatusRequestTimeout: codes.Aborted, http.StatusLocked: codes.Aborted,
	http.StatusNotImplemented: codes.FailedPrecondition,
}

// meaning is what a BMC's refusal says about what was done.
func meaning(refused *schemas.Error) codes.Code {
	ids := []string{}
	for _, info := range refused.ExtendedInfos {
		ids = append(ids, info.MessageID)
	}
	for _, id := range append(ids, refused.Code) {
		if code, known := messages[id[strings.LastIndex(id, ".")+1:]]; known {
			return code
		}
	}
	if code, known := statuses[refused.HTTPReturnedStatusCode]; known {
		return code
	}
	if refused.HTTPReturnedStatusCode >= http.StatusBadRequest && refused.HTTPReturnedStatusCode < http.StatusInternalServerError {
		return codes.FailedPrecondition
	}
	return codes.Unavailable
}

// answered translates what a BMC said, or that it said nothing, into an answer
// to the janitor. Only what certainly was not done is said not to be. sent says
// whether there was a connection for the request.
func answered(err error, sent bool) error {
	if err == nil {
		return nil
	}
	text := shorten(err.Error())
	refused, arrived := errors.AsType[*schemas.Error](err)
	switch {
	case arrived && refused.HTTPReturnedStatusCode != 0:
		if code := meaning(refused); code != codes.ResourceExhausted {
			return status.Error(code, text)
		}
		return plugin.RetryLater(retryAfter, text)
	case !sent:
		return status.Error(codes.Aborted, text)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.Error(codes.DeadlineExceeded, text)
	}
	return status.Error(codes.Unavailable, text)
}

// nothingSent turns a doubtful answer to a question before the signal into one
// that says so.
func nothingSent(err error) error {
	switch status.Code(err) { //nolint:exhaustive // the others say it themselves
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unknown, codes.Internal:
		return status.Error(codes.Aborted, "asking before the signal: "+status.Convert(err).Message())
	}
	return err
}

// maxText bounds what is told of an answer, in bytes.
const maxText = 512

func shorten(text string) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}
