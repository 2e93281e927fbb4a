package plugin_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// cloud blocks a reboot of "slow" until release is closed and panics at "bad".
type cloud struct {
	v1.UnimplementedCSPPluginServiceServer
	entered, release chan struct{}
}

func (c *cloud) SendRebootSignal(ctx context.Context, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	switch req.GetNodeName() {
	case "bad":
		panic("no such case")
	case "slow":
		close(c.entered)
		select {
		case <-c.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &v1.SendRebootSignalResponse{RequestId: "r-" + req.GetNodeName()}, nil
}

type served struct {
	conn *grpc.ClientConn
	stop context.CancelFunc
	done chan error
}

func serve(t *testing.T, impl v1.CSPPluginServiceServer, o plugin.Options) served {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- plugin.Serve(ctx, lis, impl, o) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = conn.Close() })
	return served{conn: conn, stop: stop, done: done}
}

func TestServesTheImplementationAndItsHealth(t *testing.T) {
	s := serve(t, &cloud{}, plugin.Options{})
	for _, service := range []string{"", "nvidia.nvsentinel.janitor.v1.CSPPluginService", "CSPPluginService"} {
		got, err := healthv1.NewHealthClient(s.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
		if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v; want SERVING", service, got.GetStatus(), err)
		}
	}
	client := v1.NewCSPPluginServiceClient(s.conn)
	resp, err := client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: "a"})
	if err != nil || resp.GetRequestId() != "r-a" {
		t.Errorf("reboot: %v, %v; want r-a", resp, err)
	}
	bare := &v1.SendRebootSignalResponse{}
	err = s.conn.Invoke(t.Context(), "/CSPPluginService/SendRebootSignal", &v1.SendRebootSignalRequest{NodeName: "b"}, bare)
	if err != nil || bare.GetRequestId() != "r-b" {
		t.Errorf("reboot under the bare name: %v, %v; want r-b", bare, err)
	}
	if _, err := client.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: "a"}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a verb the plugin lacks: %v, want Unimplemented", err)
	}
}

func TestPanicOfThePluginIsAnAnswer(t *testing.T) {
	logged := make(chan string, 1)
	s := serve(t, &cloud{}, plugin.Options{Panicked: func(method string, _ any) { logged <- method }})
	client := v1.NewCSPPluginServiceClient(s.conn)
	_, err := client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: "bad"}, grpc.WaitForReady(true))
	if status.Code(err) != codes.Internal {
		t.Errorf("a panic: %v, want Internal", err)
	}
	if got := <-logged; got != v1.CSPPluginService_SendRebootSignal_FullMethodName {
		t.Errorf("told about %q", got)
	}
	if _, err := client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: "a"}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestStopLetsACallFinish(t *testing.T) {
	impl := &cloud{entered: make(chan struct{}), release: make(chan struct{})}
	s := serve(t, impl, plugin.Options{Grace: 10 * time.Minute})
	answered := make(chan error, 1)
	go func() {
		_, err := v1.NewCSPPluginServiceClient(s.conn).SendRebootSignal(t.Context(),
			&v1.SendRebootSignalRequest{NodeName: "slow"}, grpc.WaitForReady(true))
		answered <- err
	}()
	<-impl.entered
	s.stop()
	select {
	case err := <-s.done:
		t.Fatalf("stopped (%v) while a call was in flight", err)
	case err := <-answered:
		t.Fatalf("the call ended (%v) before it was released", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(impl.release)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := <-s.done; err != nil {
		t.Errorf("the stop: %v", err)
	}
}

func TestStopDoesNotWaitBeyondItsGrace(t *testing.T) {
	impl := &cloud{entered: make(chan struct{}), release: make(chan struct{})}
	s := serve(t, impl, plugin.Options{Grace: time.Millisecond})
	answered := make(chan error, 1)
	go func() {
		_, err := v1.NewCSPPluginServiceClient(s.conn).SendRebootSignal(t.Context(),
			&v1.SendRebootSignalRequest{NodeName: "slow"}, grpc.WaitForReady(true))
		answered <- err
	}()
	<-impl.entered
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("the stop: %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("the call in flight ended without an error")
	}
}

func TestAddressInUseIsAnError(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	if err := plugin.ListenAndServe(t.Context(), lis.Addr().String(), &cloud{}, plugin.Options{}); err == nil {
		t.Error("listening on an address in use succeeded")
	}
}

// A plugin that was killed leaves its socket; the next one replaces it, but not
// that of a living one, and no other file.
func TestUnixSocketIsReplaced(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugin") // the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- plugin.ListenAndServe(ctx, "unix://"+path, &cloud{}, plugin.Options{}) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	resp, err := v1.NewCSPPluginServiceClient(conn).SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: "a"}, grpc.WaitForReady(true))
	if err != nil || resp.GetRequestId() != "r-a" {
		t.Errorf("reboot over the socket: %v, %v", resp, err)
	}
	if err := plugin.ListenAndServe(ctx, "unix://"+path, &cloud{}, plugin.Options{}); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a second plugin on the socket: %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("the stop: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plugin.ListenAndServe(t.Context(), "unix://"+file, &cloud{}, plugin.Options{}); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("a file in the place of the socket: %v", err)
	}
}

func TestMissingCertificateIsAnError(t *testing.T) {
	err := plugin.ListenAndServe(t.Context(), "127.0.0.1:0", &cloud{}, plugin.Options{TLS: &plugin.TLS{CertFile: "/none", KeyFile: "/none"}})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("no certificate: %v", err)
	}
}
