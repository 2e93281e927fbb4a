package door

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

// codec reads requests as admission does; what it writes is protobuf as ever.
type codec struct{ encoding.CodecV2 }

// request is a batch, or why it cannot be read.
type request struct {
	batch  protos.HealthEvents
	mended bool
	err    error
}

// Unmarshal reads a request, mended if need be; other messages are read as
// ever. gRPC answers an error of a codec itself and with Internal, so the
// request keeps its own for the handler.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r.mended, r.err = admission.Decode(data.Materialize(), &r.batch)
	return nil
}

// service is the wire's service with one difference: a request that cannot be
// decoded is InvalidArgument, the one answer at which a publisher looks for the
// bad event instead of sending the batch for ever.
var service = grpc.ServiceDesc{
	ServiceName: protos.PlatformConnector_ServiceDesc.ServiceName,
	HandlerType: (*protos.PlatformConnectorServer)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "HealthEventOccurredV1", Handler: occurred}},
	Metadata:    "health_event.proto",
}

func occurred(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	d, ok := srv.(*Door)
	if !ok {
		return nil, status.Errorf(codes.Internal, "the service is a %T", srv)
	}
	var r request
	if err := decode(&r); err != nil {
		return nil, err
	}
	if r.err != nil {
		d.Metrics.refused.WithLabelValues(string(admission.Malformed)).Inc()
		return nil, status.Errorf(codes.InvalidArgument, "the request is not a HealthEvents message: %v", r.err)
	}
	if r.mended {
		d.Metrics.cuts.WithLabelValues(string(admission.CutUTF8)).Inc()
	}
	return d.HealthEventOccurredV1(ctx, &r.batch)
}
