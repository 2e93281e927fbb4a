// Package provider calls a provider plugin and says, of every call that went
// wrong, whether the machine may have been told.
package provider

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	v1 "github.com/nvidia/nvsentinel/janitor/protos/v1"
)

// Delivery is what is known of a signal that got no good answer.
type Delivery string

// Deliveries.
const (
	// NotSent: the machine was certainly not told; ask again soon.
	NotSent Delivery = "NotSent"
	// Unknown: the machine may have been told.
	Unknown Delivery = "Unknown"
	// Refused: the machine was not told and asking again is of no use.
	Refused Delivery = "Refused"
)

// Error is a call that got no good answer.
type Error struct {
	Delivery Delivery
	Code     codes.Code
	Message  string
}

// Error names the code and the plugin's words.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// Signal asks for one reboot.
type Signal struct {
	Node, Key string
	Force     bool
}

// Plugin is the connection to one plugin.
type Plugin struct {
	conn    *grpc.ClientConn
	client  v1.CSPPluginServiceClient
	timeout time.Duration
}

// reconnect keeps trying a plugin that restarts; the library's own ceiling of
// two minutes is too much for a node that waits to be repaired.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// Dial makes the connection to the plugin at host (host:port); it is opened by
// the first call. timeout bounds every call.
func Dial(host string, timeout time.Duration) (*Plugin, error) {
	conn, err := grpc.NewClient(host,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(reconnect),
		grpc.WithStatsHandler(witness{}),
	)
	if err != nil {
		return nil, fmt.Errorf("making the client of the plugin at %q: %w", host, err)
	}
	return &Plugin{conn: conn, client: v1.NewCSPPluginServiceClient(conn), timeout: timeout}, nil
}

// Close ends the connection.
func (p *Plugin) Close() error { return p.conn.Close() }

// Reboot sends the signal and returns the plugin's request id. Its error is
// always an *Error.
func (p *Plugin) Reboot(ctx context.Context, s Signal) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	ctx, left := watched(ctx)
	resp, err := p.client.SendRebootSignal(ctx, &v1.SendRebootSignalRequest{
		NodeName: s.Node, IdempotencyKey: s.Key, Force: s.Force,
	})
	if err != nil {
		return "", failure(err, left())
	}
	return resp.GetRequestId(), nil
}

// Ready asks whether the provider considers the machine up. A plugin without
// that verb has no opinion: it is.
func (p *Plugin) Ready(ctx context.Context, node, requestID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	resp, err := p.client.IsNodeReady(ctx, &v1.IsNodeReadyRequest{NodeName: node, RequestId: requestID})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return true, nil
	case err != nil:
		return false, fmt.Errorf("asking the plugin about node %s: %w", node, err)
	}
	return resp.GetIsReady(), nil
}

// failure classifies an answer; left says whether the request left this process.
func failure(err error, left bool) *Error {
	s := status.Convert(err)
	e := &Error{Delivery: Unknown, Code: s.Code(), Message: s.Message()}
	if !left {
		e.Delivery = NotSent
		return e
	}
	switch s.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied, codes.Unimplemented:
		e.Delivery = Refused
	case codes.ResourceExhausted, codes.Aborted, codes.Unauthenticated:
		e.Delivery = NotSent
	default: // a deadline, a lost connection, a plugin that failed: unknown
	}
	return e
}
