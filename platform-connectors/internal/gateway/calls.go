package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
)

const (
	// requestTimeout bounds how long a caller may take to send its request, and how
	// long the store may take for it.
	requestTimeout = 20 * time.Second
	// turn bounds how long a request waits for memory; it is shorter than a
	// connector's own deadline, so that the connector is answered.
	turn = 10 * time.Second
	// piece is how many bytes of a request are read at once.
	piece = 256 << 10
)

// service is that of the wire, in the form of streams: gRPC reads a unary request
// before it calls anybody, and here the caller has to be known, and the memory
// acquired, first.
func service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: protos.Gateway_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "Append", Handler: handler("append", (*Gateway).append)},
			{StreamName: "Dead", Handler: handler("dead", (*Gateway).dead)},
			{StreamName: "History", Handler: handler("history", (*Gateway).history)},
		},
		Metadata: protos.Gateway_ServiceDesc.Metadata,
	}
}

// notAgain keeps gRPC itself from sending a call again that was answered (gRFC A6): while
// the store is away, every connector would ask several times as often as it means to.
var notAgain = metadata.Pairs("grpc-retry-pushback-ms", "-1")

// handler knows the caller, then reads its one request, then answers.
func handler[Q any, P interface {
	*Q
	proto.Message
}, A proto.Message](name string, answer func(*Gateway, *call, P) (A, error),
) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		g, ok := srv.(*Gateway)
		if !ok {
			return status.Errorf(codes.Internal, "unexpected service type %T", srv)
		}
		err := g.serve(stream, func(c *call) (proto.Message, error) {
			request := P(new(Q))
			if err := g.receive(c, request); err != nil {
				return nil, err
			}
			return answer(g, c, request)
		})
		g.Metrics.calls.WithLabelValues(name, status.Code(err).String()).Inc()
		if status.Code(err) == codes.Unavailable {
			stream.SetTrailer(notAgain)
		}
		return err
	}
}

// call is one call of a caller that is known.
type call struct {
	ctx    context.Context
	caller forwardpolicy.Caller
	node   *busyNode
	stream grpc.ServerStream
	// release gives back the memory of the request; it may be called without any.
	release func()
}

// busyNode is a node that has calls under way.
type busyNode struct {
	calls int
	// receiving bounds what they hold until they are received.
	receiving *semaphore.Weighted
}

// serve answers a caller that is known and has not too many calls under way.
func (g *Gateway) serve(stream grpc.ServerStream, answer func(*call) (proto.Message, error)) error {
	if underWay := g.inFlight.Add(1); underWay > int64(g.MaxCalls) {
		g.inFlight.Add(-1)
		return later(time.Second, "%d calls are in progress, nothing was accepted, retry", g.MaxCalls)
	}
	defer g.inFlight.Add(-1)
	ctx, cancel := context.WithTimeout(stream.Context(), 2*requestTimeout)
	defer cancel()
	caller, err := g.enter(ctx)
	if err != nil {
		return err
	}
	node := g.begin(caller.Node)
	if node == nil {
		return status.Errorf(codes.Unavailable, "node %s has %d calls in progress, nothing was accepted, retry", caller.Node, g.PerNode)
	}
	defer g.end(caller.Node)
	c := &call{ctx: ctx, caller: caller, node: node, stream: stream, release: func() {}}
	defer func() { c.release() }()
	reply, err := answer(c)
	if err != nil {
		return err
	}
	if conn := connectionOf(ctx); conn != nil {
		if err := conn.answer(proto.Size(reply)); err != nil {
			return err
		}
	}
	return stream.SendMsg(reply)
}

// wire is what gRPC's server has of a call below its messages. Its methods are not part
// of gRPC's promises: if a release of gRPC has others, no call is answered and every test
// of this package fails. Then acquire MaxMessage and call RecvMsg, which reads a message
// of any size without waiting for anybody.
type wire interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// receive reads the request of a call. The first bytes of a message contain its length;
// the rest is read when the node's share and the gateway's memory allow it. Until then
// flow control lets the caller send no more than the window of a stream. A slow sender is
// disconnected.
func (g *Gateway) receive(c *call, into proto.Message) error {
	from, ok := grpc.ServerTransportStreamFromContext(c.stream.Context()).(wire)
	if !ok {
		return status.Error(codes.Internal, "this version of gRPC cannot read a request in chunks")
	}
	size, err := g.announced(from)
	if err != nil {
		return err
	}
	if wait, ok := g.Shares.Spend(c.caller.Node, 0); !ok {
		return later(wait, "node %s sends more than %d bytes per second, nothing was accepted, retry later", c.caller.Node, g.Shares.PerSecond)
	}
	received, err := g.acquire(c, size)
	if err != nil {
		return err
	}
	defer received()
	g.Shares.Spend(c.caller.Node, size)
	body := make([]byte, 0, size)
	if err := g.within(func() (err error) { body, err = fill(from, body); return err }); err != nil {
		return err
	}
	if err := proto.Unmarshal(body, into); err != nil {
		return status.Errorf(codes.InvalidArgument, "decoding the request: %v", err)
	}
	return nil
}

// announced reads how long a request is.
func (g *Gateway) announced(from wire) (size int64, err error) {
	head := make([]byte, 5)
	if err := g.within(func() error { return from.ReadMessageHeader(head) }); err != nil {
		return 0, err
	}
	size = int64(binary.BigEndian.Uint32(head[1:]))
	switch {
	case head[0] != 0:
		return 0, status.Error(codes.Unimplemented, "compressed requests are not supported")
	case size > MaxMessage:
		return 0, status.Errorf(codes.ResourceExhausted, "the request has %d bytes, at most %d are allowed", size, MaxMessage)
	}
	return size, nil
}

// fill reads a request until the body has its capacity.
func fill(from wire, body []byte) ([]byte, error) {
	for len(body) < cap(body) {
		part, err := from.Read(min(piece, cap(body)-len(body)))
		if err != nil {
			return nil, err
		}
		for _, b := range part {
			body = append(body, b.ReadOnlyData()...)
		}
		part.Free()
	}
	return body, nil
}

// acquire waits for the memory of a request, which is the call's until it is answered.
// What it returns is called when the request is received: until then it counts against
// the node.
func (g *Gateway) acquire(c *call, n int64) (received func(), err error) {
	ctx, cancel := context.WithTimeout(c.ctx, turn)
	defer cancel()
	g.Metrics.waiting.Inc()
	defer g.Metrics.waiting.Dec()
	ofNode := min(n, nodeReceives)
	if err := c.node.receiving.Acquire(ctx, ofNode); err != nil {
		return nil, later(time.Second, "other requests of node %s are still being received, nothing was accepted, retry", c.caller.Node)
	}
	release, err := g.Memory.Acquire(ctx, n)
	if err != nil {
		c.node.receiving.Release(ofNode)
		return nil, later(time.Second, "the gateway is overloaded, nothing was accepted, retry")
	}
	g.Metrics.inFlightBytes.Add(float64(n))
	c.release = func() {
		g.Metrics.inFlightBytes.Sub(float64(n))
		release()
	}
	return func() { c.node.receiving.Release(ofNode) }, nil
}

// reserve has a call that was received hold n bytes instead of its request's.
func (g *Gateway) reserve(c *call, n int64) error {
	c.release()
	c.release = func() {}
	received, err := g.acquire(c, n)
	if err == nil {
		received()
	}
	return err
}

// within reads from a caller; who sends slowly is left. What still reads then ends with
// the call.
func (g *Gateway) within(read func() error) error {
	done := make(chan error, 1)
	go func() { done <- read() }()
	select {
	case err := <-done:
		return ofCaller(err)
	case <-g.Clock.After(requestTimeout):
		return status.Errorf(codes.DeadlineExceeded, "the request did not arrive within %s", requestTimeout)
	}
}

// ofCaller is an error of reading as a status.
func ofCaller(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return status.Error(codes.InvalidArgument, "the request is truncated")
	}
	return status.Convert(err).Err()
}

// later is the answer to who is to send again after a while.
func later(wait time.Duration, format string, args ...any) error {
	s := status.Newf(codes.ResourceExhausted, format, args...)
	detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// begin counts a call of a node, or returns nil if it has too many.
func (g *Gateway) begin(node string) *busyNode {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.busy[node]
	if n == nil {
		n = &busyNode{receiving: semaphore.NewWeighted(nodeReceives)}
	}
	if n.calls >= g.PerNode {
		return nil
	}
	if g.busy == nil {
		g.busy = map[string]*busyNode{}
	}
	n.calls++
	g.busy[node] = n
	return n
}

func (g *Gateway) end(node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[node].calls--; g.busy[node].calls == 0 {
		delete(g.busy, node)
	}
}
