package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// retryAfter is how long a BMC is left alone that has too much to do.
const retryAfter = 15 * time.Second

// answered translates what a BMC reported, or that it reported nothing, into an answer to
// the janitor. Only what was certainly not done is reported as not done. sent reports
// whether there was a connection for the request.
func answered(err error, sent bool) error {
	if err == nil {
		return nil
	}
	text := bmc.Shorten(err.Error())
	refused, arrived := errors.AsType[*schemas.Error](err)
	switch {
	case arrived && refused.HTTPReturnedStatusCode != 0:
		text = bmc.Shorten(errorText(refused))
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

// named is an answer that begins with what was asked for.
func named(what string, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err).Proto()
	s.Message = what + ": " + s.GetMessage()
	return status.ErrorProto(s)
}

// meaning is what a BMC's refusal shows about what was done: of several messages the one
// that promises least, else what its HTTP status shows.
func meaning(refused *schemas.Error) codes.Code {
	least := -1
	for _, info := range refused.ExtendedInfos {
		least = max(least, promise(messageCode(info.MessageID)))
	}
	if least < 0 {
		least = promise(messageCode(refused.Code))
	}
	switch byStatus := cloud.Unlisted(refused.HTTPReturnedStatusCode); {
	case least < 0, byStatus == codes.Unauthenticated, byStatus == codes.ResourceExhausted:
		return byStatus
	}
	return promises[least]
}

// promises are the meanings of messages; each promises less than the one before.
var promises = []codes.Code{
	codes.FailedPrecondition, codes.PermissionDenied, // never
	codes.Unauthenticated, codes.Aborted, codes.ResourceExhausted, // not yet
	codes.Unavailable, // perhaps done
}

// promise is the place of a code among them; -1 has none.
func promise(code codes.Code) int {
	for i, one := range promises {
		if one == code {
			return i
		}
	}
	return -1
}

// errorText is what a BMC reported, for people: its messages, or else its whole answer.
func errorText(refused *schemas.Error) string {
	var list []string
	for _, info := range refused.ExtendedInfos {
		list = append(list, strings.TrimSpace(info.MessageID+" "+info.Message))
		if info.Message == "" && len(info.MessageArgs) > 0 {
			list[len(list)-1] += " (" + strings.Join(info.MessageArgs, ", ") + ")"
		}
	}
	if len(list) == 0 {
		return "HTTP " + refused.Error()
	}
	return fmt.Sprintf("HTTP %d: %s", refused.HTTPReturnedStatusCode, strings.Join(list, "; "))
}

// nothingSent turns a doubtful answer to a question before the signal into Aborted:
// nothing was sent.
func nothingSent(err error) error {
	switch status.Code(err) { //nolint:exhaustive // the others say it themselves
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unknown, codes.Internal:
		return status.Error(codes.Aborted, "verifying before the request: "+status.Convert(err).Message())
	}
	return err
}

// messageCode is what the message of an id means for what was done; OK is nothing.
func messageCode(id string) codes.Code {
	registry, key := split(id)
	if code, known := anywhere[key]; known {
		return code
	}
	if code, known := registries[registry][key]; known {
		return code
	}
	if strings.HasSuffix(key, "InProgress") {
		return codes.Unavailable // perhaps the one that was asked for
	}
	return codes.OK
}

// base is the message registry that every service has.
const base = "Base"

// split names the registry and the message of a MessageId (DSP0266, "MessageId
// format"), whose versions differ: Base.1.8.Success, Base.1.8.1.Success,
// Base.v1_4_0.Success. Some old services leave the registry out.
func split(id string) (registry, key string) {
	registry, _, dotted := strings.Cut(id, ".")
	if !dotted {
		return base, id
	}
	return registry, id[strings.LastIndex(id, ".")+1:]
}

// anywhere are messages that mean "not now" or leave open what was done, in whichever
// registry: vendors have their own of the same names (sources: the Base registry of
// DMTF DSP8011; the registries of HPE iLO 5 to 7, "Response message definitions" of
// https://servermanagementportal.ext.hpe.com). One that is missing here costs nothing:
// what is not known is tried again too.
var anywhere = map[string]codes.Code{
	"ServiceTemporarilyUnavailable": codes.ResourceExhausted, "SessionLimitExceeded": codes.ResourceExhausted,

	"ResourceInUse": codes.Aborted, "ResourceInUseWithDetail": codes.Aborted, "ResourceNotReadyRetry": codes.Aborted,
	"ResourceInStandby": codes.Aborted, "ServiceInUnknownState": codes.Aborted, "ServiceShuttingDown": codes.Aborted,
	"InvalidOperationForSystemState": codes.Aborted, "UnableToModifyDuringSystemPOST": codes.Aborted,

	"InternalError": codes.Unavailable, "OperationFailed": codes.Unavailable, "OperationTimeout": codes.Unavailable, "Success": codes.Unavailable,
}

// registries are messages that mean something in their own registry alone, among them
// all that end a repair: an action, a parameter or a value that the BMC does not know,
// a privilege or a licence that is missing.
var registries = map[string]map[string]codes.Code{
	base: {
		"NoValidSession": codes.Unauthenticated, "ResourceAtUriUnauthorized": codes.Unauthenticated, "PasswordChangeRequired": codes.Unauthenticated,
		// It is about credentials; Lenovo's XCC sends it for wrong ones.
		"AccessDenied": codes.Unauthenticated, "AccountForSessionNoLongerExists": codes.Unauthenticated,

		"InsufficientPrivilege": codes.PermissionDenied,

		"ActionNotSupported": codes.FailedPrecondition, "OperationNotAllowed": codes.FailedPrecondition,
		"ActionParameterNotSupported": codes.FailedPrecondition, "ActionParameterUnknown": codes.FailedPrecondition,
		"ActionParameterValueNotInList": codes.FailedPrecondition, "ActionParameterValueFormatError": codes.FailedPrecondition,
		"ActionParameterValueTypeError": codes.FailedPrecondition, "ActionParameterValueError": codes.FailedPrecondition,
		"ActionParameterValueOutOfRange": codes.FailedPrecondition,
		// Services that read the parameters of an action as properties.
		"PropertyUnknown": codes.FailedPrecondition, "PropertyValueNotInList": codes.FailedPrecondition,
		"PropertyValueFormatError": codes.FailedPrecondition, "PropertyValueTypeError": codes.FailedPrecondition,
		"PropertyValueError": codes.FailedPrecondition, "PropertyValueOutOfRange": codes.FailedPrecondition,
	},
	// "Server is already powered ON": perhaps by the request before.
	"IDRAC": {"PSU501": codes.Unavailable},
	"iLO":   {"LicenseKeyRequired": codes.PermissionDenied},
	"SMC":   {"OemLicenseNotPassed": codes.PermissionDenied},
}
