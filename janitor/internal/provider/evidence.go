package provider

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// sentTracker notes whether a request left this process: an error before that
// proves that nothing was sent, whatever its code.
type sentTracker struct{}

type leftKey struct{}

// watched returns a context for one call and whether its request left.
func watched(ctx context.Context) (context.Context, func() bool) {
	left := &atomic.Bool{}
	return context.WithValue(ctx, leftKey{}, left), left.Load
}

func (sentTracker) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC sees OutHeader once the request has a stream on a connection.
func (sentTracker) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, out := s.(*stats.OutHeader); !out {
		return
	}
	if left, ok := ctx.Value(leftKey{}).(*atomic.Bool); ok {
		left.Store(true)
	}
}

func (sentTracker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sentTracker) HandleConn(context.Context, stats.ConnStats) {}
