// Package gateway is the gRPC service between the connectors of nodes and the
// record store, so that no node holds an account of the store. It answers when
// the store has the records. A caller is known before its request is read.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/destination"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/platform-connectors/passage"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Bounds of one call.
const (
	// MaxMessage bounds one message in either direction, in bytes.
	MaxMessage = 16 << 20
	// maxRecords bounds the records of one append.
	maxRecords = 4096
	// MaxDead bounds the body of a dead letter, in bytes.
	MaxDead = 8 << 20
	// historyPage is how many records a page of a history has, at most; few,
	// because each may be large.
	historyPage = 64
	// historyBytes ends a page that has as many bytes.
	historyBytes = 4 << 20
	// historyCost is what a page costs of the node's share, besides its request.
	historyCost = 64 << 10
	// patience bounds how long a caller may take to send its request, and how
	// long the store may take for it.
	patience = 20 * time.Second
)

// Store is what the gateway needs of the record store.
type Store interface {
	store.Identified
	Dead(ctx context.Context, deadLetter store.DeadLetter) error
	List(ctx context.Context, q store.Query) ([]record.Record, error)
}

// Gateway serves the connectors.
type Gateway struct {
	Callers *Callers
	Store   Store
	// PerNode bounds the calls of one node at the same time.
	PerNode int
	// Shares bounds what one node brings over time.
	Shares *Shares
	// Bytes bounds the requests that are worked on at the same time; it is at least
	// MaxMessage. Who waits is served in the order of coming.
	Bytes   *semaphore.Weighted
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *Metrics

	mu   sync.Mutex
	busy map[string]int

	asking sync.Mutex // guards the fields below
	server string
	asked  time.Time
}

// service is that of the wire, in the form of streams: gRPC reads a unary request
// before it calls anybody, and here the caller has to be known first.
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

// handler knows the caller, then reads its one request, then answers.
func handler[Q any, P interface {
	*Q
	proto.Message
}, A proto.Message](call string, answer func(*Gateway, context.Context, passage.Caller, P) (A, error),
) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		g, ok := srv.(*Gateway)
		if !ok {
			return status.Errorf(codes.Internal, "the service is a %T", srv)
		}
		err := g.serve(stream, func(ctx context.Context, caller passage.Caller) (proto.Message, error) {
			request := P(new(Q))
			if err := g.receive(stream, request); err != nil {
				return nil, err
			}
			size := min(int64(proto.Size(request)), MaxMessage)
			if !g.Shares.Spend(caller.Node, size) {
				return nil, status.Errorf(codes.ResourceExhausted, "node %s sends more than %d bytes a second, nothing was taken, send again later", caller.Node, g.Shares.PerSecond)
			}
			if err := g.Bytes.Acquire(ctx, size); err != nil {
				return nil, status.Error(codes.Unavailable, "the gateway has too much before it, nothing was taken, send again")
			}
			defer g.Bytes.Release(size)
			return answer(g, ctx, caller, request)
		})
		g.Metrics.calls.WithLabelValues(call, status.Code(err).String()).Inc()
		if status.Code(err) == codes.Unavailable {
			stream.SetTrailer(notAgain)
		}
		return err
	}
}

// notAgain keeps gRPC itself from sending a call again that was answered (gRFC A6): while
// the store is away, every connector would ask several times as often as it means to.
var notAgain = metadata.Pairs("grpc-retry-pushback-ms", "-1")

// serve answers a caller that is known and has not too many calls under way.
func (g *Gateway) serve(stream grpc.ServerStream, answer func(context.Context, passage.Caller) (proto.Message, error)) error {
	ctx, cancel := context.WithTimeout(stream.Context(), 2*patience)
	defer cancel()
	caller, err := g.Callers.Enter(ctx)
	if err != nil {
		return err
	}
	if !g.enter(caller.Node) {
		return status.Errorf(codes.Unavailable, "node %s has %d calls under way, nothing was taken, send again", caller.Node, g.PerNode)
	}
	defer g.leave(caller.Node)
	reply, err := answer(ctx, caller)
	if err != nil {
		return err
	}
	return stream.SendMsg(reply)
}

// receive reads the request; who sends it slowly is left.
func (g *Gateway) receive(stream grpc.ServerStream, into proto.Message) error {
	done := make(chan error, 1)
	go func() { done <- stream.RecvMsg(into) }()
	select {
	case err := <-done:
		return err
	case <-g.Clock.After(patience):
		return status.Errorf(codes.DeadlineExceeded, "the request did not arrive within %s", patience)
	}
}

func (g *Gateway) enter(node string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[node] >= g.PerNode {
		return false
	}
	if g.busy == nil {
		g.busy = map[string]int{}
	}
	g.busy[node]++
	return true
}

func (g *Gateway) leave(node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[node]--; g.busy[node] == 0 {
		delete(g.busy, node)
	}
}

// append passes on what may be passed on, in one call of the store.
func (g *Gateway) append(ctx context.Context, caller passage.Caller, q *protos.AppendRequest) (*protos.AppendResponse, error) {
	if n := len(q.GetRecords()); n > maxRecords {
		return nil, status.Errorf(codes.InvalidArgument, "%d records in one call, at most %d", n, maxRecords)
	}
	crashpoint.Here("platform-connectors/gateway-received")
	now := g.Clock.Now().UTC()
	out := &protos.AppendResponse{}
	var passed []record.Record
	var of []*protos.Result
	for _, doc := range q.GetRecords() {
		result := &protos.Result{}
		out.Results = append(out.Results, result)
		r, refusal := g.pass(caller, doc, now)
		if refusal != nil {
			result.Outcome, result.Problem = protos.Outcome_OUTCOME_REFUSED, refusal.Problem
			g.Metrics.refused.WithLabelValues(string(refusal.Reason)).Inc()
			g.Log.Warn("a record was refused", "node", caller.Node, "reason", refusal.Reason, "problem", refusal.Problem)
			continue
		}
		passed, of = append(passed, r), append(of, result)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(q.GetRecords()) == 0 {
		return g.name(ctx, q.GetServer())
	}
	if len(passed) == 0 {
		return out, nil
	}
	results, server, err := g.Store.AppendTo(ctx, q.GetServer(), passed)
	out.Server = server
	if errors.Is(err, store.ErrMoved) {
		out.Results = nil
		return out, nil
	}
	if err == nil && len(results) != len(passed) {
		err = fmt.Errorf("the store answered for %d of %d records", len(results), len(passed))
	}
	if err != nil {
		return nil, g.away(err)
	}
	crashpoint.Here("platform-connectors/gateway-appended")
	for i, result := range results {
		of[i].Outcome = outcomeOf(result)
		if result == store.Refused {
			of[i].Problem = destination.OtherContent
		}
	}
	return out, nil
}

// nameFor is how long a name of the server is passed on without asking again.
const nameFor = 5 * time.Second

// name says which server the store is: connectors that keep something of a server
// ask now and then whether it is still there.
func (g *Gateway) name(ctx context.Context, known string) (*protos.AppendResponse, error) {
	g.asking.Lock()
	defer g.asking.Unlock()
	if age := g.Clock.Since(g.asked); g.server == "" || g.server != known || age < 0 || age > nameFor {
		server, err := g.Store.Server(ctx)
		if err != nil {
			return nil, g.away(err)
		}
		g.server, g.asked = server, g.Clock.Now()
	}
	return &protos.AppendResponse{Server: g.server}, nil
}

// pass decides about one document.
func (g *Gateway) pass(caller passage.Caller, doc []byte, now time.Time) (record.Record, *passage.Refusal) {
	r, err := record.Decode(doc)
	if err != nil {
		return r, &passage.Refusal{Reason: passage.Malformed, Problem: fmt.Sprintf("it is no record: %v", err)}
	}
	return g.Callers.Policy.Pass(caller, r, now)
}

func outcomeOf(r store.AppendResult) protos.Outcome {
	switch r {
	case store.Appended:
		return protos.Outcome_OUTCOME_APPENDED
	case store.Duplicate:
		return protos.Outcome_OUTCOME_DUPLICATE
	case store.Refused:
	}
	return protos.Outcome_OUTCOME_REFUSED
}

// dead keeps a letter under the node's name: another node's stay as they are.
func (g *Gateway) dead(ctx context.Context, caller passage.Caller, q *protos.DeadRequest) (*protos.DeadResponse, error) {
	if len(q.GetBody()) > MaxDead {
		return nil, status.Errorf(codes.InvalidArgument, "a letter of %d bytes, at most %d", len(q.GetBody()), MaxDead)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := g.Store.Dead(ctx, store.DeadLetter{
		ID: cut(q.GetId(), 128), Source: "platform-connectors/" + caller.Node, Reason: cut(q.GetReason(), 1024),
		Body: q.GetBody(), At: g.Clock.Now().UTC(),
	})
	if err != nil {
		return nil, g.away(err)
	}
	return &protos.DeadResponse{}, nil
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// history reads a page of the caller's own node.
func (g *Gateway) history(ctx context.Context, caller passage.Caller, q *protos.HistoryRequest) (*protos.HistoryResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	page, err := destination.History(ctx, g.Store, caller.Node, q.GetAfter(), historyPage)
	if err != nil {
		return nil, g.away(err)
	}
	g.Shares.Spend(caller.Node, historyCost)
	out, size := &protos.HistoryResponse{}, 0
	for _, r := range page {
		doc, err := record.AppendJSON(nil, r)
		if err != nil {
			return nil, g.away(err)
		}
		if size += len(doc); size > historyBytes && len(out.GetRecords()) > 0 {
			break
		}
		out.Records = append(out.Records, doc)
	}
	return out, nil
}

// away is the answer when the store did not do what it was asked: its error is
// ours to log, and none of the caller's business.
func (g *Gateway) away(err error) error {
	g.Log.Warn("the store did not answer a connector; it sends again", "error", err)
	return status.Error(codes.Unavailable, "the record store did not answer, nothing is known to be stored, send again")
}

func asDenied(err error) (*authn.Denied, bool) { return errors.AsType[*authn.Denied](err) }
