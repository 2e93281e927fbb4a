package ingest

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

// Bounds of what requests take in memory before they are answered.
const (
	// maxConnections bounds the connections; one more is closed at once. What a
	// connection has sent ahead is bounded by window.
	maxConnections = 64
	// maxStreams bounds the requests of one connection; more wait at the client.
	maxStreams = 64
	// maxReceiving bounds the requests that are being received, each of up to
	// maxBatch bytes, and patience how long one may take for that.
	maxReceiving = 16
	readTimeout  = 10 * time.Second
	// maxInFlight bounds the bytes of received requests that are not answered.
	maxInFlight = 32 << 20
)

// limits is what is left for requests.
type limits struct {
	once      sync.Once
	receiving *semaphore.Weighted
	bytes     *semaphore.Weighted
}

func (l *limits) open() {
	l.once.Do(func() {
		l.receiving, l.bytes = semaphore.NewWeighted(maxReceiving), semaphore.NewWeighted(maxInFlight)
	})
}

// receive takes the request from the line when there is capacity for it; release gives the
// capacity back.
func (d *Server) receive(ctx context.Context, stream grpc.ServerStream) (r request, release func(), err error) {
	d.limits.open()
	if err := d.limits.receiving.Acquire(ctx, 1); err != nil {
		return r, nil, d.refuse(err)
	}
	defer d.limits.receiving.Release(1)
	if r, err = message(stream, d.readDeadline()); err != nil {
		return r, nil, err
	}
	n := int64(len(r.wire))
	if err := d.limits.bytes.Acquire(ctx, n); err != nil {
		return r, nil, d.refuse(err)
	}
	return r, func() { d.limits.bytes.Release(n) }, nil
}

func (d *Server) readDeadline() <-chan time.Time {
	if d.ReadTimeout != nil {
		return d.ReadTimeout()
	}
	return time.After(readTimeout) //nolint:forbidigo // Patience is the injected clock; this is its default
}

// message waits for the stream's message. One that does not come in time is left
// alone: it ends with the stream.
func message(stream grpc.ServerStream, late <-chan time.Time) (request, error) {
	type got struct {
		request
		err error
	}
	came := make(chan got, 1)
	go func() {
		var g got
		g.err = stream.RecvMsg(&g.request)
		came <- g
	}()
	select {
	case g := <-came:
		return g.request, g.err
	case <-late:
		return request{}, status.Errorf(codes.DeadlineExceeded, "the request did not arrive within %s", readTimeout)
	}
}

// bounded is a listener with at most so many connections. One more is closed at
// once, so that it does not wait in front of those that will be let in.
type bounded struct {
	net.Listener
	slots  chan struct{}
	closed func() // counts a connection for which there was no capacity
}

// Accept returns the next connection for which there is capacity.
func (b bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.slots <- struct{}{}:
			return &connection{Conn: c, leave: sync.OnceFunc(func() { <-b.slots })}, nil
		default:
			b.closed()
			_ = c.Close() // its peer tries again
		}
	}
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *connection) Close() error {
	c.leave()
	return c.Conn.Close()
}

// NetConn is the connection itself, for who asks the kernel about its peer.
func (c *connection) NetConn() net.Conn { return c.Conn }

// codec leaves requests as they came; what it writes is protobuf as usual.
type codec struct{ encoding.CodecV2 }

// request is a batch as it came.
type request struct{ wire []byte }

// Unmarshal keeps a request for decode, and reads other messages as usual.
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
// and there is capacity, before the message is taken from the line. And a request
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
		return status.Errorf(codes.Internal, "unexpected service type %T", srv)
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

// decode reads a request, and corrects it if necessary.
func (d *Server) decode(r request) (*protos.HealthEvents, error) {
	var batch protos.HealthEvents
	repaired, err := admission.Decode(r.wire, &batch)
	if refusal, ok := errors.AsType[*admission.Refusal](err); ok {
		return nil, d.refuse(refusal)
	}
	if err != nil {
		d.Metrics.refused.WithLabelValues(string(admission.Malformed)).Inc()
		return nil, status.Errorf(codes.InvalidArgument, "the request is not a HealthEvents message: %v", err)
	}
	if repaired {
		d.Metrics.cuts.WithLabelValues(string(admission.CutUTF8)).Inc()
	}
	return &batch, nil
}
