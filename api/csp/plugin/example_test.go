package plugin_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// racks reboots machines through the power switches of its racks.
type racks struct {
	v1.UnimplementedCSPPluginServiceServer
	reset func(ctx context.Context, machine, key string) (id string, err error)
	up    func(ctx context.Context, id string) (bool, error)
}

func (r racks) SendRebootSignal(ctx context.Context, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	if req.GetNodeName() == "" {
		return nil, status.Error(codes.InvalidArgument, "node_name is empty")
	}
	id, err := r.reset(ctx, req.GetNodeName(), req.GetIdempotencyKey())
	return &v1.SendRebootSignalResponse{RequestId: id}, err
}

func (r racks) IsNodeReady(ctx context.Context, req *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	up, err := r.up(ctx, req.GetRequestId())
	return &v1.IsNodeReadyResponse{IsReady: up}, err
}

// A whole plugin: an implementation and its main function.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	stop() // a real main function defers this
	err := plugin.ListenAndServe(ctx, "127.0.0.1:0", racks{}, plugin.Options{})
	fmt.Println("stopped:", err)
	// Output: stopped: <nil>
}
