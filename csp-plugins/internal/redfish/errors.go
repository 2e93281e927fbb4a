package redfish

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
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// retryAfter is how long a BMC is left alone that has too much to do.
const retryAfter = 15 * time.Second

// answered translates what a BMC said, or that it said nothing, into an answer to
// the janitor. Only what certainly was not done is said not to be. sent says
// whether there was a connection for the request.
func answered(err error, sent bool) error {
	if err == nil {
		return nil
	}
	text := shorten(err.Error())
	refused, arrived := errors.AsType[*schemas.Error](err)
	switch {
	case arrived && refused.HTTPReturnedStatusCode != 0:
		text = shorten(words(refused))
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

// meaning is what a BMC's refusal says about what was done: of several messages the
// one that promises least, else what its HTTP status says.
func meaning(refused *schemas.Error) codes.Code {
	least := -1
	for _, info := range refused.ExtendedInfos {
		least = max(least, promise(said(info.MessageID)))
	}
	if least < 0 {
		least = promise(said(refused.Code))
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

// words are what a BMC said, for people: its messages, or else its whole answer.
func words(refused *schemas.Error) string {
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
