package ingest

import (
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

// codec leaves requests as they came; what it writes is protobuf as ever.
type codec struct{ encoding.CodecV2 }

// request is a batch as it came.
type request struct{ wire []byte }

// Unmarshal keeps a request for decode, and reads other messages as ever.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r.wire = data.Materialize()
	return nil
}

// service is the wire's service with two differences. Its methods are served as
// streams of one message, which is the same on the wire: so the caller is known,
// and there is room, before the message is taken from the line. And a request
// that cannot be decoded is InvalidArgument, the one answer at which a publisher
// looks for the bad event instead of sending the batch for ever.
var service = grpc.ServiceDesc{
	ServiceName: protos.PlatformConnector_ServiceDesc.ServiceName,
	HandlerType: (*protos.PlatformConnectorServer)(nil),
	Streams: []grpc.StreamDesc{
		{StreamName: "HealthEventOccurredV1", Handler: func(srv any, stream grpc.ServerStream) error {
			return occurred(srv, stream, func(d *Server, from sender, batch *protos.HealthEvents) (any, error) {
				return &emptypb.Empty{}, d.occurred(stream.Context(), from, batch)
			})
		}},
		{StreamName: "HealthEventOccurredV2", Handler: func(srv any, stream grpc.ServerStream) error {
			return occurred(srv, stream, func(d *Server, from sender, batch *protos.HealthEvents) (any, error) {
				return d.each(stream.Context(), from, batch)
			})
		}},
	},
	Metadata: "health_event.proto",
}

// occurred receives a batch and answers what is made of it.
func occurred(srv any, stream grpc.ServerStream, take func(d *Server, from sender, batch *protos.HealthEvents) (any, error)) error {
	d, ok := srv.(*Server)
	if !ok {
		return status.Errorf(codes.Internal, "the service is a %T", srv)
	}
	ctx := stream.Context()
	caller, wide, err := d.Authenticator.Enter(ctx)
	if err != nil {
		return d.refuse(err)
	}
	r, release, err := d.receive(ctx, stream)
	if err != nil {
		return err
	}
	defer release()
	batch, err := d.decode(r)
	if err != nil {
		return err
	}
	answer, err := take(d, sender{caller, wide}, batch)
	if err != nil {
		return err
	}
	return stream.SendMsg(answer)
}

// decode reads a request, mended if need be.
func (d *Server) decode(r request) (*protos.HealthEvents, error) {
	var batch protos.HealthEvents
	mended, err := admission.Decode(r.wire, &batch)
	if refusal, ok := errors.AsType[*admission.Refusal](err); ok {
		return nil, d.refuse(refusal)
	}
	if err != nil {
		d.Metrics.refused.WithLabelValues(string(admission.Malformed)).Inc()
		return nil, status.Errorf(codes.InvalidArgument, "the request is not a HealthEvents message: %v", err)
	}
	if mended {
		d.Metrics.cuts.WithLabelValues(string(admission.CutUTF8)).Inc()
	}
	return &batch, nil
}
