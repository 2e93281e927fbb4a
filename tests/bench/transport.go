package bench

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nvidia/nvsentinel/api/protos"
)

// silent answers every request at once and does nothing.
type silent struct {
	protos.UnimplementedPlatformConnectorServer
}

// HealthEventOccurredV1 is the connector's RPC.
func (silent) HealthEventOccurredV1(context.Context, *protos.HealthEvents) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// emptyTransport is how long the same requests take without any durability:
// each of one publisher, and all of many.
func (r *ingestRun) emptyTransport(ctx context.Context) (one []time.Duration, all time.Duration, err error) {
	socket := filepath.Join(r.fleet.Dir, "silent.sock")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, 0, err
	}
	server := grpc.NewServer()
	protos.RegisterPlatformConnectorServer(server, silent{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		err = errors.Join(err, <-done)
	}()
	if one, _, err = publish(ctx, r.pen, socket, 1, r.sizes.Acks); err != nil {
		return nil, 0, err
	}
	_, all, err = publish(ctx, r.pen, socket, r.sizes.Publishers, r.sizes.Events)
	return one, all, err
}
