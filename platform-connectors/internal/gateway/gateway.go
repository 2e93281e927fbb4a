// Package gateway is the gRPC service between the connectors of nodes and the
// record store, so that no node holds an account of the store. It answers when
// the store has the records. A caller is known before its request is read.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
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
	// historyPart is how many bytes of a page one answer bears; the next page begins
	// where it ends.
	historyPart = 1 << 20
	// MaxCalls bounds the calls under way. Until its request is received each holds
	// what flow control lets a caller send ahead, 64 KiB.
	MaxCalls = 512
)

// Store is what the gateway needs of the record store.
type Store interface {
	store.Identified
	Dead(ctx context.Context, deadLetter store.DeadLetter) error
	TrimDeadLetters(ctx context.Context, bound store.DeadLetterBound, now time.Time) (int, error)
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
	// Quotas bounds what is stored of one node in a day; nil bounds nothing.
	Quotas *Quotas
	// Memory bounds the requests that are received and worked on at the same time.
	Memory *Memory
	// MaxCalls bounds the calls under way.
	MaxCalls int
	Clock    clock.WithTicker
	Log      *slog.Logger
	Metrics  *Metrics

	inFlight atomic.Int64

	mu   sync.Mutex
	busy map[string]*busyNode

	identityMu     sync.Mutex // guards the fields below
	server         string
	identityReadAt time.Time
}

// enter identifies a caller and its connection.
func (g *Gateway) enter(ctx context.Context) (forwardpolicy.Caller, error) {
	caller, err := g.Callers.Enter(ctx)
	if err != nil {
		return caller, err
	}
	if conn := connectionOf(ctx); conn != nil {
		return caller, conn.identify(caller.Node)
	}
	return caller, nil
}

// append passes on what may be passed on, in one call of the store.
func (g *Gateway) append(c *call, q *protos.AppendRequest) (*protos.AppendResponse, error) {
	if n := len(q.GetRecords()); n > maxRecords {
		return nil, status.Errorf(codes.InvalidArgument, "%d records in one call, at most %d are allowed", n, maxRecords)
	}
	crashpoint.Here("platform-connectors/gateway-received")
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	if len(q.GetRecords()) == 0 {
		return g.name(ctx, q.GetServer())
	}
	allowed := g.allow(c, q.GetServer())
	defer allowed.end()
	s, err := g.sift(c, q, allowed)
	if err != nil {
		return nil, err
	}
	if len(s.passed) == 0 {
		return s.answer, allowed.settle(nil, "")
	}
	results, server, err := g.Store.AppendTo(ctx, q.GetServer(), s.passed)
	s.answer.Server = server
	if errors.Is(err, store.ErrMoved) {
		allowed.failed()
		s.answer.Results = nil
		return s.answer, nil
	}
	if err == nil && len(results) != len(s.passed) {
		err = fmt.Errorf("the store returned results for %d of %d records", len(results), len(s.passed))
	}
	if err != nil {
		allowed.failed()
		return nil, g.away(err)
	}
	if err := allowed.settle(results, server); err != nil {
		return nil, err
	}
	crashpoint.Here("platform-connectors/gateway-appended")
	for i, result := range results {
		s.of[i].Outcome = outcomeOf(result)
		if result == store.Refused {
			s.of[i].Problem = upstream.OtherContent
		}
	}
	return s.answer, nil
}

// sifted are the records of a call that go to the store, each with its place in the answer.
type sifted struct {
	answer *protos.AppendResponse
	passed []record.Record
	of     []*protos.Result
}

// sift decides about each record of a call.
func (g *Gateway) sift(c *call, q *protos.AppendRequest, allowed *allowance) (sifted, error) {
	now, s := g.Clock.Now().UTC(), sifted{answer: &protos.AppendResponse{}}
	var refusals refusals
	for _, doc := range q.GetRecords() {
		result := &protos.Result{}
		s.answer.Results = append(s.answer.Results, result)
		r, refusal := g.pass(c.caller, doc, now)
		if refusal != nil {
			result.Outcome, result.Problem = protos.Outcome_OUTCOME_REFUSED, refusal.Problem
			g.Metrics.refused.WithLabelValues(string(refusal.Reason)).Inc()
			refusals.add(refusal)
			continue
		}
		r, verdict, err := allowed.decide(r, int64(len(doc)))
		if err != nil {
			return s, err
		}
		if verdict.Counted() {
			result.Outcome, result.Problem = protos.Outcome_OUTCOME_COUNTED, g.Quotas.problem(c.caller.Node)
			continue
		}
		s.passed, s.of = append(s.passed, r), append(s.of, result)
	}
	refusals.log(g.Log, c.caller.Node)
	return s, nil
}

// refusals are those of one call: one line of the log, however many there are.
type refusals struct {
	n     int
	first *forwardpolicy.Refusal
}

func (r *refusals) add(refusal *forwardpolicy.Refusal) {
	if r.n++; r.n == 1 {
		r.first = refusal
	}
}

func (r *refusals) log(log *slog.Logger, node string) {
	if r.n > 0 {
		log.Warn("records rejected", "node", node, "records", r.n, "first_reason", r.first.Reason, "first_problem", r.first.Problem)
	}
}

// nameFor is how long a name of the server is passed on without asking again.
const nameFor = 5 * time.Second

// name returns which server the store is: connectors that keep something of a server
// ask now and then whether it is still there.
func (g *Gateway) name(ctx context.Context, known string) (*protos.AppendResponse, error) {
	g.identityMu.Lock()
	defer g.identityMu.Unlock()
	if age := g.Clock.Since(g.identityReadAt); g.server == "" || g.server != known || age < 0 || age > nameFor {
		server, err := g.Store.Server(ctx)
		if err != nil {
			return nil, g.away(err)
		}
		g.server, g.identityReadAt = server, g.Clock.Now()
	}
	return &protos.AppendResponse{Server: g.server}, nil
}

// pass decides about one document.
func (g *Gateway) pass(caller forwardpolicy.Caller, doc []byte, now time.Time) (record.Record, *forwardpolicy.Refusal) {
	r, err := record.Decode(doc)
	if err != nil {
		return r, &forwardpolicy.Refusal{Reason: forwardpolicy.Malformed, Problem: fmt.Sprintf("the record is malformed: %v", err)}
	}
	return g.Callers.Policy.Pass(caller, r, now)
}

func outcomeOf(r store.AppendResult) protos.Outcome {
	switch r {
	case store.Appended:
		return protos.Outcome_OUTCOME_APPENDED
	case store.Duplicate:
		return protos.Outcome_OUTCOME_DUPLICATE
	case store.Refused, store.Counted:
	}
	return protos.Outcome_OUTCOME_REFUSED
}

// dead keeps a letter under the node's name: another node's stay as they are. Its oldest
// go when it has too many; when its quota and the reserve are spent, no more are kept.
func (g *Gateway) dead(c *call, q *protos.DeadRequest) (*protos.DeadResponse, error) {
	size := int64(len(q.GetBody()))
	if size > MaxDead {
		return nil, status.Errorf(codes.InvalidArgument, "the dead letter has %d bytes, at most %d are allowed", size, MaxDead)
	}
	if g.Quotas.spent(c.caller.Node) {
		g.Metrics.overQuota.WithLabelValues(droppedLetter).Inc()
		return &protos.DeadResponse{Dropped: 1}, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	now, bound := g.Clock.Now().UTC(), store.OfConnectors()
	bound.Source, bound.Prefix = bound.Source+"/"+c.caller.Node, false
	err := g.Store.Dead(ctx, store.DeadLetter{ID: cut(q.GetId(), 128), Source: bound.Source, Reason: cut(q.GetReason(), 1024), Body: q.GetBody(), At: now})
	if err != nil {
		return nil, g.away(err)
	}
	g.Quotas.note(c.caller.Node, forwardpolicy.Use{Bytes: size, Records: 1}, 0, 0)
	dropped, err := g.Store.TrimDeadLetters(ctx, bound, now)
	if err != nil {
		return nil, g.away(err)
	}
	return &protos.DeadResponse{Dropped: int32(min(dropped, math.MaxInt32))}, nil
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// history reads a page of the caller's own node.
func (g *Gateway) history(c *call, q *protos.HistoryRequest) (*protos.HistoryResponse, error) {
	if err := g.reserve(c, MaxMessage); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	page, err := upstream.History(ctx, g.Store, c.caller.Node, q.GetAfter(), historyPage)
	if err != nil {
		return nil, g.away(err)
	}
	out, size := &protos.HistoryResponse{}, 0
	for _, r := range page {
		doc, err := record.AppendJSON(nil, r)
		if err != nil {
			return nil, g.away(err)
		}
		if size+len(doc) > historyPart && len(out.GetRecords()) > 0 {
			break
		}
		out.Records, size = append(out.Records, doc), size+len(doc)
	}
	g.Shares.Spend(c.caller.Node, int64(size))
	return out, nil
}

// away is the answer when the store did not do what it was asked: its error is
// ours to log, and none of the caller's business.
func (g *Gateway) away(err error) error {
	g.Log.Warn("store request of a connector failed, the connector retries", "error", err)
	return status.Error(codes.Unavailable, "the record store did not respond, storage is not confirmed, retry")
}

func asDenied(err error) (*authn.Denied, bool) { return errors.AsType[*authn.Denied](err) }
