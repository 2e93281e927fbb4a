package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
)

const (
	// maxBatch bounds one request, in bytes.
	maxBatch = 4 << 20
	// window is how many bytes a publisher may send ahead, on a connection and in
	// one request.
	window = 1 << 20
	// workers are the goroutines that are kept for requests, so that their stacks
	// need not grow again each time; more requests have one each for themselves.
	workers = 32
	// leave is how long requests in flight have when the server stops.
	leave = 10 * time.Second
)

// Listen takes the Unix socket at path with the given permissions. A socket
// that a dead process left is replaced; one that answers, or a file of another
// kind, is an error.
func Listen(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("inspecting socket %s: %w", path, err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("opening socket %s: the path exists and is not a socket, remove it", path)
	default:
		if err := removeStale(ctx, path); err != nil {
			return nil, err
		}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on the socket: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("setting the socket's permissions: %w", err), l.Close())
	}
	return l, nil
}

// removeStale removes a socket at which nobody listens any more. Any other
// answer leaves it alone: a process that is too busy to take a further
// connection lives.
func removeStale(ctx context.Context, path string) error {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("opening socket %s: another process is listening there", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("checking for another process that listens at socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing an abandoned socket: %w", err)
	}
	return nil
}

// Serve answers on the listener until ctx ends, then lets what is in flight
// finish.
func Serve(ctx context.Context, l net.Listener, d *Server) error {
	options := []grpc.ServerOption{
		grpc.Creds(authn.Peers{Log: d.Log}),
		grpc.MaxRecvMsgSize(maxBatch),
		// With windows of its own choice gRPC would measure the line with a ping
		// per request, which the publisher has to answer.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.NumStreamWorkers(workers), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Minute, Timeout: 20 * time.Second}),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
	}
	if crashpoint.Enabled {
		options = append(options, grpc.StatsHandler(acknowledged{}))
	}
	server := grpc.NewServer(options...)
	server.RegisterService(&service, d)
	probe := health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, probe)
	probe.SetServingStatus(protos.PlatformConnector_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)

	within := bounded{l, make(chan struct{}, maxConnections), d.Metrics.crowded}
	done := make(chan error, 1)
	go func() { done <- server.Serve(within) }()
	select {
	case err := <-done:
		return fmt.Errorf("serving the socket: %w", err)
	case <-ctx.Done():
	}
	probe.Shutdown()
	timer := time.AfterFunc(leave, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	return <-done
}

// acknowledged marks the place after a batch's OK was handed to the transport.
type acknowledged struct{}

// batchKey marks the contexts of calls that bring a batch.
type batchKey struct{}

func (acknowledged) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	method := info.FullMethodName
	return context.WithValue(ctx, batchKey{}, method == protos.PlatformConnector_HealthEventOccurredV1_FullMethodName ||
		method == protos.PlatformConnector_HealthEventOccurredV2_FullMethodName)
}

func (acknowledged) HandleRPC(ctx context.Context, s stats.RPCStats) {
	end, ok := s.(*stats.End)
	if ok && end.Error == nil && ctx.Value(batchKey{}) == true {
		crashpoint.Here("platform-connectors/acknowledged")
	}
}

func (acknowledged) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (acknowledged) HandleConn(context.Context, stats.ConnStats) {}
