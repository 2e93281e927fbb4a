package report

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
)

// Outcome is what becomes of one event that was handed to a connector.
type Outcome int

// Outcomes.
const (
	// Retry: the event was not accepted and may be later.
	Retry Outcome = iota
	// Accepted: the event is durable.
	Accepted
	// Rejected: the event will never be accepted as it is.
	Rejected
)

// Verdict is a connector's answer for one event.
type Verdict struct {
	Outcome Outcome
	// Err is why the event was not accepted. Its gRPC code is that of the request if
	// the connector has answered for the whole request.
	Err error
}

// Sender hands events to a connector.
type Sender struct {
	Connector protos.PlatformConnectorClient
	// Failed is called for each request that the connector did not answer with OK; nil
	// ignores them.
	Failed func(error)
}

// Send returns the connector's answer for each event, in their order. An error means that
// the request failed for a reason that is none of its events': nothing is known to be
// accepted, and all have to be sent again.
//
// A connector of an older version answers for whole requests. It is asked about each
// event alone if it refuses the request for one of them. Its PermissionDenied does not
// distinguish a refused event from a refused publisher; such an event is sent again.
func (s Sender) Send(ctx context.Context, events []*protos.HealthEvent) ([]Verdict, error) {
	request, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	answer, err := s.Connector.HealthEventOccurredV2(request, &protos.HealthEvents{Version: 1, Events: events})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return s.sendBatch(ctx, events)
	case err == nil && len(answer.GetResults()) != len(events):
		err = status.Errorf(codes.Internal, "the connector returned results for %d of %d events", len(answer.GetResults()), len(events))
	case err == nil:
		return verdicts(answer), nil
	}
	s.failed(err)
	if status.Code(err) != codes.InvalidArgument {
		return nil, err
	}
	// The request is wrong, not one of its events: it cannot be decoded, or is too large.
	if len(events) == 1 {
		return []Verdict{{Rejected, err}}, nil
	}
	return s.halves(ctx, events)
}

// halves sends the events in two requests.
func (s Sender) halves(ctx context.Context, events []*protos.HealthEvent) ([]Verdict, error) {
	middle := len(events) / 2
	out, err := s.Send(ctx, events[:middle])
	if err != nil {
		return nil, err
	}
	rest, err := s.Send(ctx, events[middle:])
	for i := 0; err != nil && i < len(events)-middle; i++ {
		rest = append(rest, Verdict{Retry, err})
	}
	return append(out, rest...), nil
}

// verdicts are those of a connector's answer.
func verdicts(answer *protos.HealthEventResults) []Verdict {
	out := make([]Verdict, len(answer.GetResults()))
	for i, r := range answer.GetResults() {
		switch r.GetOutcome() {
		case protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED:
			out[i].Outcome = Accepted
		case protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_REJECTED:
			out[i] = Verdict{Rejected, rejection(r.GetProblem())}
		default:
			out[i] = Verdict{Retry, status.Error(codes.Unavailable, r.GetProblem())}
		}
	}
	return out
}

// rejection is why an event was rejected, in the connector's words.
type rejection string

// Error implements error.
func (r rejection) Error() string { return string(r) }

// sendBatch sends events to a connector of an older version.
func (s Sender) sendBatch(ctx context.Context, events []*protos.HealthEvent) ([]Verdict, error) {
	out := make([]Verdict, len(events))
	err := s.batchResult(ctx, events)
	switch code := status.Code(err); {
	case err == nil:
		for i := range out {
			out[i].Outcome = Accepted
		}
		return out, nil
	case code != codes.InvalidArgument && code != codes.PermissionDenied:
		return nil, err
	case len(events) == 1:
		out[0] = Verdict{Retry, err}
		if code == codes.InvalidArgument {
			out[0].Outcome = Rejected
		}
		return out, nil
	}
	for i := range events {
		one, err := s.sendBatch(ctx, events[i:i+1])
		if err != nil {
			out[i] = Verdict{Retry, err}
			continue
		}
		out[i] = one[0]
	}
	return out, nil
}

func (s Sender) batchResult(ctx context.Context, events []*protos.HealthEvent) error {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	_, err := s.Connector.HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: events})
	if err != nil {
		s.failed(err)
	}
	return err //nolint:wrapcheck // the caller needs its code, and says what was sent
}

func (s Sender) failed(err error) {
	if s.Failed != nil {
		s.Failed(err)
	}
}

// One is Send of a single event: nil is accepted, *Refused is rejected for good, any
// other error is to be tried again.
func (s Sender) One(ctx context.Context, event *protos.HealthEvent) error {
	verdicts, err := s.Send(ctx, []*protos.HealthEvent{event})
	if err != nil {
		return err
	}
	switch v := verdicts[0]; v.Outcome {
	case Accepted:
		return nil
	case Rejected:
		return &Refused{v.Err}
	default:
		return v.Err
	}
}

// Refused is the error of an event that is rejected for good.
type Refused struct{ Cause error }

// Error is the connector's reason.
func (r *Refused) Error() string {
	return fmt.Sprintf("the event is permanently rejected: %v", r.Cause)
}

// Unwrap is the connector's reason.
func (r *Refused) Unwrap() error { return r.Cause }
