// Package plugin is the server skeleton of a provider plugin: an implementation
// of CSPPluginService needs nothing else to be a plugin the janitor can call.
//
//	impl := &myCloud{} // embeds v1.UnimplementedCSPPluginServiceServer
//	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
//	defer stop()
//	err := plugin.ListenAndServe(ctx, ":9090", impl, plugin.Options{})
//
// What the janitor makes of an answer's code:
//
//   - InvalidArgument, NotFound, FailedPrecondition, PermissionDenied and
//     Unimplemented: nothing was done and asking again is of no use; the repair
//     ends as failed, with the answer's message. (Unimplemented from IsNodeReady
//     means that the provider has no opinion: the Node decides.)
//   - ResourceExhausted, Aborted and Unauthenticated, and Unavailable with
//     RetryInfo (see RetryLater): nothing was done; it asks again with the same
//     key, after the delay of RetryInfo, else soon and less and less often.
//   - everything else, DeadlineExceeded and plain Unavailable included: it may
//     have been done. The node's boot id decides; while it is unchanged the
//     janitor asks again with the same key, but not before resendAfter. With
//     RetryInfo (see Pending) it asks again after that delay.
//
// The first group with the reason of NodeUnresponsive ends a repair whose attempt counts.
// Only the first group ends a repair before its timeout. A signal that was taken
// must be answered with OK for every repetition of its key, with the same
// request id.
//
// The service is served under its full name and under the bare one that a proto
// file without a package line gives it.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// DefaultGrace is how long calls in flight may take at the stop.
const DefaultGrace = 10 * time.Second

// Options of a plugin's server; the zero value is useful.
type Options struct {
	// Grace is how long calls in flight may take at the stop; 0 means
	// DefaultGrace.
	Grace time.Duration
	// TLS is spoken with these files; nil speaks plain text, which is for Unix
	// sockets and loopback addresses.
	TLS *TLS
	// Server are further options of the gRPC server, for example those of
	// auth.Check.
	Server []grpc.ServerOption
	// Panicked is called on a panic of the implementation; the caller gets codes.Internal
	// either way.
	Panicked func(method string, value any)
}

// ListenAndServe serves impl on host:port or unix:///path until ctx ends.
func ListenAndServe(ctx context.Context, address string, impl v1.CSPPluginServiceServer, o Options) error {
	lis, err := listen(ctx, address)
	if err != nil {
		return err
	}
	return Serve(ctx, lis, impl, o)
}

// Serve serves impl and the gRPC health service on lis until ctx ends, then
// reports NOT_SERVING, lets the calls in flight finish and closes lis. It returns
// nil after an ordered stop.
func Serve(ctx context.Context, lis net.Listener, impl v1.CSPPluginServiceServer, o Options) error {
	options := append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(recovered(o.Panicked))}, o.Server...)
	if o.TLS != nil {
		secure, err := o.TLS.option()
		if err != nil {
			return errors.Join(err, lis.Close())
		}
		options = append(options, secure)
	}
	server := grpc.NewServer(options...)
	state := health.NewServer()
	for _, service := range names() {
		server.RegisterService(service, impl)
		state.SetServingStatus(service.ServiceName, healthv1.HealthCheckResponse_SERVING)
	}
	healthv1.RegisterHealthServer(server, state)

	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving the janitor: %w", err)
	case <-ctx.Done():
	}
	state.Shutdown()
	stop(server, o.Grace)
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving the janitor: %w", err)
	}
	return nil
}

// names are the service under its full and under its bare name.
func names() []*grpc.ServiceDesc {
	full := v1.CSPPluginService_ServiceDesc
	bare := full
	bare.ServiceName = full.ServiceName[strings.LastIndexByte(full.ServiceName, '.')+1:]
	return []*grpc.ServiceDesc{&full, &bare}
}

// stop waits for the calls in flight, but not longer than grace.
func stop(server *grpc.Server, grace time.Duration) {
	if grace <= 0 {
		grace = DefaultGrace
	}
	hurry := time.AfterFunc(grace, server.Stop)
	defer hurry.Stop()
	server.GracefulStop()
}

// recovered turns a panic of the implementation into codes.Internal: one bad
// request must not kill the plugin for all nodes.
func recovered(panicked func(string, any)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if value := recover(); value != nil {
				if panicked != nil {
					panicked(info.FullMethod, value)
				}
				err = status.Error(codes.Internal, "the plugin panicked")
			}
		}()
		return handler(ctx, req)
	}
}
