package provider_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
)

// scripted answers every verb with code, or hangs.
type scripted struct {
	v1.UnimplementedCSPPluginServiceServer
	code codes.Code
	// message of the code; empty is "so it is".
	message  string
	hang     bool
	requests chan *v1.SendRebootSignalRequest
}

func (s *scripted) SendRebootSignal(ctx context.Context, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	if s.requests != nil {
		s.requests <- req
	}
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.code != codes.OK {
		return nil, status.Error(s.code, cmp.Or(s.message, "so it is"))
	}
	return &v1.SendRebootSignalResponse{RequestId: "r1"}, nil
}

func (s *scripted) SendTerminateSignal(_ context.Context, req *v1.SendTerminateSignalRequest) (*v1.SendTerminateSignalResponse, error) {
	return &v1.SendTerminateSignalResponse{RequestId: fmt.Sprintf("gone-%s-%s-%v", req.GetNodeName(), req.GetIdempotencyKey(), req.GetForce())}, nil
}

func (s *scripted) IsNodeReady(context.Context, *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	if s.code != codes.OK {
		return nil, status.Error(s.code, cmp.Or(s.message, "so it is"))
	}
	return &v1.IsNodeReadyResponse{IsReady: true}, nil
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	return lis
}

func serve(t *testing.T, impl v1.CSPPluginServiceServer) (*provider.Plugin, context.CancelFunc) {
	t.Helper()
	lis := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- plugin.Serve(ctx, lis, impl, plugin.Options{Grace: time.Millisecond}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("stopping the plugin: %v", err)
		}
	})
	return dial(t, lis.Addr().String(), 10*time.Second), stop
}

func dial(t *testing.T, address string, timeout time.Duration) *provider.Plugin {
	t.Helper()
	p, err := provider.Dial(provider.Endpoint{Host: address, CallTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func delivery(t *testing.T, err error) provider.Delivery {
	t.Helper()
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		t.Fatalf("%v is not a provider.Error", err)
	}
	return e.Delivery
}

func TestSignalCarriesNodeKeyAndForce(t *testing.T) {
	impl := &scripted{requests: make(chan *v1.SendRebootSignalRequest, 1)}
	p, _ := serve(t, impl)
	id, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k", Force: true})
	if err != nil || id != "r1" {
		t.Fatalf("reboot: %q, %v; want r1", id, err)
	}
	if got := <-impl.requests; got.GetNodeName() != "n" || got.GetIdempotencyKey() != "k" || !got.GetForce() {
		t.Errorf("the plugin was asked %v", got)
	}
}

func TestDeliveryOfEveryCode(t *testing.T) {
	want := map[codes.Code]provider.Delivery{
		codes.InvalidArgument: provider.Refused, codes.NotFound: provider.Refused, codes.FailedPrecondition: provider.Refused,
		codes.PermissionDenied: provider.Refused, codes.Unimplemented: provider.Refused,
		codes.ResourceExhausted: provider.NotSent, codes.Aborted: provider.NotSent, codes.Unauthenticated: provider.NotSent,
		codes.Unavailable: provider.Unknown, codes.DeadlineExceeded: provider.Unknown, codes.Internal: provider.Unknown,
		codes.Unknown: provider.Unknown, codes.Canceled: provider.Unknown, codes.DataLoss: provider.Unknown,
		codes.AlreadyExists: provider.Unknown, codes.OutOfRange: provider.Unknown,
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		p, _ := serve(t, &scripted{code: code})
		_, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
		if got := delivery(t, err); got != want[code] {
			t.Errorf("%s: %s, want %s", code, got, want[code])
		}
	}
}

func TestRefusedConnectionProvesThatNothingWasSent(t *testing.T) {
	const nobody = "127.0.0.1:1" // a port that no test is given
	_, err := dial(t, nobody, 10*time.Second).Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
	if got := delivery(t, err); got != provider.NotSent {
		t.Errorf("connection refused: %s (%v), want NotSent", got, err)
	}
}

func TestDeadlineWhileConnectingProvesThatNothingWasSent(t *testing.T) {
	lis := listen(t) // accepts by the kernel's backlog and never speaks HTTP/2
	_, err := dial(t, lis.Addr().String(), 50*time.Millisecond).Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
	if got := delivery(t, err); got != provider.NotSent {
		t.Errorf("deadline while connecting: %s (%v), want NotSent", got, err)
	}
}

func TestSilenceIsUnknown(t *testing.T) {
	lis := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	impl := &scripted{hang: true, requests: make(chan *v1.SendRebootSignalRequest, 1)}
	go func() { done <- plugin.Serve(ctx, lis, impl, plugin.Options{Grace: time.Millisecond}) }()
	p := dial(t, lis.Addr().String(), 5*time.Second)
	// A deadline that comes while the line is being made proves that nothing was sent.
	await(t, "the line", func() bool {
		_, err := p.State(t.Context(), "n", "")
		return err == nil
	})
	_, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
	if got := delivery(t, err); got != provider.Unknown {
		t.Errorf("no answer in time: %s (%v), want Unknown", got, err)
	}
	<-impl.requests
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestConnectionLostAfterTheRequestIsUnknown(t *testing.T) {
	impl := &scripted{hang: true, requests: make(chan *v1.SendRebootSignalRequest, 1)}
	p, stop := serve(t, impl)
	answer := make(chan error, 1)
	go func() {
		_, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
		answer <- err
	}()
	<-impl.requests
	stop()
	if got := delivery(t, <-answer); got != provider.Unknown {
		t.Errorf("connection lost: %s, want Unknown", got)
	}
}

func TestState(t *testing.T) {
	for _, tt := range []struct {
		code  codes.Code
		state provider.State
	}{
		{codes.OK, provider.Up},
		{codes.Unimplemented, provider.NoOpinion},
		{codes.NotFound, provider.Gone},
		{codes.Unavailable, ""},
		{codes.PermissionDenied, ""},
	} {
		p, _ := serve(t, &scripted{code: tt.code})
		state, err := p.State(t.Context(), "n", "r1")
		if state != tt.state || (err != nil) != (tt.state == "") {
			t.Errorf("%s: %q, %v; want %q", tt.code, state, err, tt.state)
		}
	}
}

// A termination is a signal like a reboot.
func TestTerminate(t *testing.T) {
	p, _ := serve(t, later{})
	_, err := p.Terminate(t.Context(), provider.Signal{Node: "n", Key: "k"})
	if delivery(t, err) != provider.Refused {
		t.Errorf("not implemented: %v, want a refusal", err)
	}
	p, _ = serve(t, &scripted{})
	if id, err := p.Terminate(t.Context(), provider.Signal{Node: "n", Key: "k", Force: true}); err != nil || id != "gone-n-k-true" {
		t.Errorf("termination: %q, %v", id, err)
	}
}

// throttling answers with RetryInfo under a code of its own.
type throttling struct {
	v1.UnimplementedCSPPluginServiceServer
	code codes.Code
}

func (h throttling) SendRebootSignal(context.Context, *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	s, err := status.New(h.code, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
	if err != nil {
		return nil, err
	}
	return nil, s.Err()
}

// Only the plugin itself can state when to come back, so with that even
// Unavailable proves that nothing was done; a deadline never does.
func TestRetryInfo(t *testing.T) {
	for code, want := range map[codes.Code]provider.Delivery{
		codes.ResourceExhausted: provider.NotSent, codes.Unavailable: provider.NotSent,
		codes.DeadlineExceeded: provider.Unknown, codes.NotFound: provider.Refused,
	} {
		p, _ := serve(t, throttling{code: code})
		_, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
		e, _ := errors.AsType[*provider.Error](err)
		if e == nil || e.Delivery != want || e.RetryAfter != 7*time.Second || e.Message != "later" {
			t.Errorf("%s with RetryInfo: %+v, want %s after 7s", code, e, want)
		}
	}
	p, _ := serve(t, later{})
	_, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
	e, _ := errors.AsType[*provider.Error](err)
	if e == nil || e.Code != codes.ResourceExhausted || e.RetryAfter != time.Minute {
		t.Errorf("plugin.RetryLater gave %+v", e)
	}
}

// unresponsive answers that the node does not respond, or with a reason of its own.
type unresponsive struct {
	v1.UnimplementedCSPPluginServiceServer
	reason, domain string
}

func (u unresponsive) SendRebootSignal(context.Context, *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	if u.reason == "" {
		return nil, plugin.NodeUnresponsive("so it is")
	}
	s, err := status.New(codes.FailedPrecondition, "so it is").WithDetails(&errdetails.ErrorInfo{Reason: u.reason, Domain: u.domain})
	if err != nil {
		return nil, err
	}
	return nil, s.Err()
}

func TestANodeThatDoesNotRespond(t *testing.T) {
	for _, tt := range []struct {
		impl unresponsive
		want bool
	}{
		{unresponsive{}, true},
		{unresponsive{reason: "NodeUnresponsive", domain: "nvsentinel.dgxc.nvidia.com"}, true}, // the words of the contract
		{unresponsive{reason: "NodeUnresponsive", domain: "example.com"}, false},
		{unresponsive{reason: "Other", domain: "nvsentinel.dgxc.nvidia.com"}, false},
	} {
		p, _ := serve(t, tt.impl)
		_, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
		e, _ := errors.AsType[*provider.Error](err)
		if e == nil || e.Delivery != provider.Refused || e.Unresponsive != tt.want {
			t.Errorf("%+v gives %+v, want a refusal that is unresponsive: %v", tt.impl, e, tt.want)
		}
	}
}

// pending answers that the signal is under way.
type pending struct {
	v1.UnimplementedCSPPluginServiceServer
}

func (pending) SendRebootSignal(context.Context, *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	return nil, plugin.Pending(7*time.Second, "later")
}

func TestASignalThatIsUnderWay(t *testing.T) {
	p, _ := serve(t, pending{})
	_, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
	e, _ := errors.AsType[*provider.Error](err)
	if e == nil || e.Delivery != provider.Unknown || e.RetryAfter != 7*time.Second {
		t.Errorf("plugin.Pending gave %+v, want %s after 7s", e, provider.Unknown)
	}
}

// later answers with the skeleton's own words.
type later struct {
	v1.UnimplementedCSPPluginServiceServer
}

func (later) SendRebootSignal(context.Context, *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	return nil, plugin.RetryLater(time.Minute, "too many")
}

// A plugin made from a proto file without a package line knows the service by
// its bare name alone.
func TestBareName(t *testing.T) {
	lis := listen(t)
	server := grpc.NewServer()
	desc := v1.CSPPluginService_ServiceDesc
	desc.ServiceName = "CSPPluginService"
	impl := &scripted{requests: make(chan *v1.SendRebootSignalRequest, 2)}
	server.RegisterService(&desc, impl)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-served })
	p := dial(t, lis.Addr().String(), 10*time.Second)
	id, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
	if err != nil || id != "r1" || len(impl.requests) != 1 {
		t.Errorf("reboot under the bare name: %q, %v, %d calls; want r1 by one call", id, err, len(impl.requests))
	}
	if state, err := p.State(t.Context(), "n", id); err != nil || state != provider.Up {
		t.Errorf("asked under the bare name: %v, %v", state, err)
	}
}

// Neither name: refused, with the plugin's words.
func TestNoNameIsKnown(t *testing.T) {
	p, _ := serve(t, &v1.UnimplementedCSPPluginServiceServer{})
	_, err := p.Reboot(t.Context(), provider.Signal{Node: "n", Key: "k"})
	if delivery(t, err) != provider.Refused || !strings.Contains(err.Error(), "SendRebootSignal not implemented") {
		t.Errorf("no implementation: %v, want a refusal that names the verb", err)
	}
}
