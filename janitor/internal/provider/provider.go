// Package provider calls a provider plugin and reports, for every call that went wrong,
// whether the machine may have been signaled.
package provider

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// Delivery is what is known of a signal that got no good answer.
type Delivery string

// Deliveries.
const (
	// NotSent: the machine was certainly not signaled; ask again soon.
	NotSent Delivery = "NotSent"
	// Unknown: the machine may have been signaled.
	Unknown Delivery = "Unknown"
	// Refused: the machine was not signaled and asking again is of no use.
	Refused Delivery = "Refused"
)

// Error is a call that got no good answer.
type Error struct {
	Delivery Delivery
	Code     codes.Code
	Message  string
	// RetryAfter is the time after which the plugin wants to be asked again (RetryInfo in
	// the answer's details); 0 if it gave none.
	RetryAfter time.Duration
	// Unresponsive: the signal needs the node itself, which did not react
	// (NodeUnresponsive in the answer's details).
	Unresponsive bool
}

// Error names the code and the plugin's words.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// Signal asks for one reboot or termination.
type Signal struct {
	Node, Key string
	Force     bool
}

// Plugin is the connection to one plugin.
type Plugin struct {
	conn     *grpc.ClientConn
	endpoint Endpoint
	// declined: the plugin's last word was that it does not serve.
	declined atomic.Bool
}

// reconnect keeps trying a plugin that restarts; the library's own ceiling of
// two minutes is too much for a node that waits to be repaired.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// Dial makes the connection to a plugin; it is opened by the first call. Files
// that can not be read are an error.
func Dial(e Endpoint) (*Plugin, error) {
	options, err := e.options()
	if err != nil {
		return nil, fmt.Errorf("creating the client of the plugin at %q: %w", e.Host, err)
	}
	conn, err := grpc.NewClient(e.Host, options...)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the plugin at %q: %w", e.Host, err)
	}
	return &Plugin{conn: conn, endpoint: e}, nil
}

// Close ends the connection.
func (p *Plugin) Close() error { return p.conn.Close() }

// Reboot sends the signal and returns the plugin's request id. Its error is
// always an *Error.
func (p *Plugin) Reboot(ctx context.Context, s Signal) (string, error) {
	resp := &v1.SendRebootSignalResponse{}
	err := p.signal(ctx, v1.CSPPluginService_SendRebootSignal_FullMethodName, &v1.SendRebootSignalRequest{
		NodeName: s.Node, IdempotencyKey: s.Key, Force: s.Force,
	}, resp)
	return resp.GetRequestId(), err
}

// Terminate is Reboot for giving the machine back.
func (p *Plugin) Terminate(ctx context.Context, s Signal) (string, error) {
	resp := &v1.SendTerminateSignalResponse{}
	err := p.signal(ctx, v1.CSPPluginService_SendTerminateSignal_FullMethodName, &v1.SendTerminateSignalRequest{
		NodeName: s.Node, IdempotencyKey: s.Key, Force: s.Force,
	}, resp)
	return resp.GetRequestId(), err
}

// signal calls a verb that touches a machine.
func (p *Plugin) signal(ctx context.Context, method string, req, resp any) error {
	ctx, cancel := context.WithTimeout(ctx, p.endpoint.CallTimeout)
	defer cancel()
	if p.declined.Load() {
		return &Error{Delivery: NotSent, Code: codes.Unavailable, Message: "the plugin reports that it does not serve"}
	}
	left, err := p.call(ctx, method, req, resp)
	if err == nil {
		return nil
	}
	e := failure(err, left)
	if hint := p.endpoint.unknownToken(); e.Code == codes.Unauthenticated && left && hint != "" {
		e.Message += " (" + hint + ")"
	}
	return e
}

// State is what a provider reports about a machine.
type State string

// States.
const (
	// Up: the machine is up.
	Up State = "Up"
	// NotUp: it is not, or not again yet.
	NotUp State = "NotUp"
	// Gone: the provider certainly has no such machine.
	Gone State = "Gone"
	// NoOpinion: the plugin does not implement the question.
	NoOpinion State = "NoOpinion"
)

// State asks the provider for the state of a machine.
func (p *Plugin) State(ctx context.Context, node, requestID string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, p.endpoint.CallTimeout)
	defer cancel()
	resp := &v1.IsNodeReadyResponse{}
	_, err := p.call(ctx, v1.CSPPluginService_IsNodeReady_FullMethodName, &v1.IsNodeReadyRequest{NodeName: node, RequestId: requestID}, resp)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return NoOpinion, nil
	case status.Code(err) == codes.NotFound:
		return Gone, nil
	case err != nil:
		return "", fmt.Errorf("querying the plugin about node %s: %w", node, err)
	case resp.GetIsReady():
		return Up, nil
	}
	return NotUp, nil
}

// packageName is what a plugin made from a proto file without a package line
// lacks in its service's name.
const packageName = "nvidia.nvsentinel.janitor.v1."

// call calls a verb and reports whether the request left this process. A plugin
// that does not implement it under its full name is asked once under the bare
// one; nothing was done by then.
func (p *Plugin) call(ctx context.Context, method string, req, resp any) (bool, error) {
	left, err := p.invoke(ctx, method, req, resp)
	if status.Code(err) != codes.Unimplemented {
		return left, err
	}
	bareLeft, bare := p.invoke(ctx, strings.Replace(method, packageName, "", 1), req, resp)
	if status.Code(bare) == codes.Unimplemented {
		return left, status.Errorf(codes.Unimplemented, "%s, with the unqualified name: %s",
			status.Convert(err).Message(), status.Convert(bare).Message())
	}
	return bareLeft, bare
}

// invoke is one call under one name.
func (p *Plugin) invoke(ctx context.Context, method string, req, resp any) (bool, error) {
	ctx, left := watched(ctx)
	err := p.conn.Invoke(ctx, method, req, resp)
	return left(), err
}

// failure classifies an answer; left reports whether the request left this process.
// Only the plugin itself can attach RetryInfo, so with it Unavailable is an
// answer and not a lost connection.
func failure(err error, left bool) *Error {
	s := status.Convert(err)
	e := &Error{Delivery: Unknown, Code: s.Code(), Message: s.Message(), RetryAfter: retryAfter(s), Unresponsive: plugin.IsNodeUnresponsive(err)}
	switch {
	case !left:
		e.Delivery = NotSent
	case refused[s.Code()]:
		e.Delivery = Refused
	case notDone[s.Code()], s.Code() == codes.Unavailable && e.RetryAfter > 0:
		e.Delivery = NotSent
	}
	return e // else a deadline, a lost connection, a plugin that failed: unknown
}

// refused and notDone are the codes by which a plugin reports that nothing was
// done, for good or for now.
var (
	refused = map[codes.Code]bool{
		codes.InvalidArgument: true, codes.NotFound: true, codes.FailedPrecondition: true,
		codes.PermissionDenied: true, codes.Unimplemented: true,
	}
	notDone = map[codes.Code]bool{codes.ResourceExhausted: true, codes.Aborted: true, codes.Unauthenticated: true}
)

// retryAfter is the delay of the answer's RetryInfo.
func retryAfter(s *status.Status) time.Duration {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return max(0, info.GetRetryDelay().AsDuration())
		}
	}
	return 0
}
