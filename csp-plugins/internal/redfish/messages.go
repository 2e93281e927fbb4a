package redfish

import (
	"strings"

	"google.golang.org/grpc/codes"
)

// said is what the message of an id says was done; OK is nothing.
func said(id string) codes.Code {
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

// anywhere are messages that say "not now" or leave open what was done, in whichever
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
		// It speaks of credentials; Lenovo's XCC says it of wrong ones.
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
