package plugin

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The google.rpc.ErrorInfo of NodeUnresponsive.
const (
	domain       = "nvsentinel.dgxc.nvidia.com"
	unresponsive = "NodeUnresponsive"
)

// RetryLater is the answer to a call that did nothing and may be repeated after
// a while: ResourceExhausted with RetryInfo.
func RetryLater(after time.Duration, why string) error {
	return answer(codes.ResourceExhausted, why, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
}

// Pending is the answer to a signal that is under way and that the provider has not accepted
// yet: DeadlineExceeded with RetryInfo. The janitor treats the signal as possibly sent, and
// repeats the key after that time if the Node shows no effect, without waiting for
// resendAfter.
func Pending(after time.Duration, why string) error {
	return answer(codes.DeadlineExceeded, why, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
}

// NodeUnresponsive is the answer to a signal that needs the node itself, which did not react:
// FailedPrecondition with ErrorInfo. The janitor ends the object with this reason, and the
// attempt counts, so that the next action follows.
func NodeUnresponsive(why string) error {
	return answer(codes.FailedPrecondition, why, &errdetails.ErrorInfo{Reason: unresponsive, Domain: domain})
}

// IsNodeUnresponsive reports whether an error is the answer NodeUnresponsive.
func IsNodeUnresponsive(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain && info.GetReason() == unresponsive {
			return true
		}
	}
	return false
}

// answer is a status with a detail.
func answer(code codes.Code, why string, detail protoadapt.MessageV1) error {
	s := status.New(code, why)
	detailed, err := s.WithDetails(detail)
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}
