package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// maxMessage bounds one message in either direction, as the gateway does.
	maxMessage = 16 << 20
	// chunk is from how many bytes on the records of a batch go in a call of their
	// own.
	chunk = 1 << 20
	// attempt bounds one call; a batch's calls together have the caller's deadline.
	attempt = 25 * time.Second
	// publisherHeader bears the token of a cluster-wide publisher.
	publisherHeader = "nvsentinel-publisher-authorization"
	// resetHeader means that somebody has ended faults of the node since the last call.
	resetHeader = "nvsentinel-anew"
	// policy: one connection to one gateway, chosen by chance, another one when
	// that is gone. A call waits for a connection until its deadline, and is sent
	// again where it was not answered: appending twice is appending once.
	policy = `{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":true}}],
"methodConfig":[{"name":[{"service":"nvsentinel.gateway.v1.Gateway"}],"waitForReady":true,
"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"1s","backoffMultiplier":3,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
)

// Gateway is the gateways as the place where records go. Batches of one caller
// keep their order, whichever gateway each of their calls reaches: the next one is
// sent when the store has the one before, and a call that arrives late finds its
// records stored.
type Gateway struct {
	conn *grpc.ClientConn
	api  protos.GatewayClient
	log  *slog.Logger
}

// Open prepares connections to the gateways; it does not wait for one. The files that prove
// a gateway are read for each connection, so they may come later.
func Open(cfg Config, log *slog.Logger) (*Gateway, error) {
	if _, err := cfg.tls(); err != nil {
		log.Error("gateway verification not possible yet, events stay in the write-ahead log", "error", err)
	}
	target, options := "dns:///"+cfg.addresses()[0], []grpc.DialOption{
		grpc.WithTransportCredentials(renewed{cfg}),
		grpc.WithPerRPCCredentials(token(cfg.TokenFile)),
		grpc.WithDefaultServiceConfig(policy), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: 10 * time.Second},
			// gRPC's own, without which it is the backoff. An address that does not respond
			// delays nothing: another one is tried beside it after 250 ms (gRFC A61).
			MinConnectTimeout: 20 * time.Second,
		}),
		// A gateway whose machine is gone does not respond: calls must not wait for it.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	}
	if several := cfg.addresses(); len(several) > 1 {
		list := manual.NewBuilderWithScheme("gateways")
		var state resolver.State
		for _, address := range several {
			state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
		}
		list.InitialState(state)
		target, options = "gateways:///"+cfg.name(), append(options, grpc.WithResolvers(list))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the gateways: %w", err)
	}
	return &Gateway{conn, protos.NewGatewayClient(conn), log}, nil
}

// Append is that of store.Store. Called for a publisher's request it shows the gateway that
// publisher's token: only with it may an event be about any node.
func (g *Gateway) Append(ctx context.Context, batch []record.Record) ([]store.AppendResult, error) {
	results, _, err := g.AppendTo(ctx, "", batch)
	return results, err
}

// AppendTo implements retained.Destination, as store.Identified defines it. Of a batch that
// needs several calls the first ones may have been appended when the store moves.
func (g *Gateway) AppendTo(ctx context.Context, server string, batch []record.Record) ([]store.AppendResult, string, error) {
	ctx = forPublisher(ctx)
	if IsReset(ctx) {
		ctx = metadata.AppendToOutgoingContext(ctx, resetHeader, "true")
	}
	out := make([]store.AppendResult, 0, len(batch))
	request, size, first := &protos.AppendRequest{Server: server}, 0, 0
	for i, r := range batch {
		doc, err := record.AppendJSON(nil, r)
		if err != nil {
			return nil, "", fmt.Errorf("encoding record %s: %w", r.ID, err)
		}
		request.Records, size = append(request.Records, doc), size+len(doc)
		if size < chunk && i < len(batch)-1 {
			continue
		}
		results, now, err := g.append(ctx, request, batch[first:i+1])
		if err != nil {
			return nil, now, err
		}
		server = cmp.Or(now, server)
		out, request, size, first = append(out, results...), &protos.AppendRequest{Server: server}, 0, i+1
	}
	if len(batch) > 0 {
		return out, server, nil
	}
	_, now, err := g.append(ctx, request, nil)
	return nil, now, err
}

// append sends what the batch's documents are in.
func (g *Gateway) append(ctx context.Context, q *protos.AppendRequest, batch []record.Record) ([]store.AppendResult, string, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	reply, err := g.api.Append(ctx, q)
	if err != nil {
		return nil, "", fmt.Errorf("sending to the gateway: %w", err)
	}
	now := reply.GetServer()
	if q.GetServer() != "" && now != "" && now != q.GetServer() {
		return nil, now, fmt.Errorf("sending to the gateway: %w", store.ErrMoved)
	}
	if len(reply.GetResults()) != len(q.GetRecords()) {
		return nil, "", fmt.Errorf("the gateway returned results for %d of %d records", len(reply.GetResults()), len(q.GetRecords()))
	}
	out := make([]store.AppendResult, len(reply.GetResults()))
	for i, result := range reply.GetResults() {
		switch result.GetOutcome() {
		case protos.Outcome_OUTCOME_APPENDED:
			out[i] = store.Appended
		case protos.Outcome_OUTCOME_DUPLICATE:
			out[i] = store.Duplicate
		case protos.Outcome_OUTCOME_REFUSED:
			out[i] = store.Refused
			ReportRefusal(ctx, batch[i].ID, result.GetProblem())
			g.log.Error("record rejected by the gateway", "id", batch[i].ID, "problem", result.GetProblem())
		case protos.Outcome_OUTCOME_COUNTED:
			out[i] = store.Counted
			ReportRefusal(ctx, batch[i].ID, result.GetProblem())
		case protos.Outcome_OUTCOME_UNSPECIFIED:
			return nil, "", fmt.Errorf("the gateway returned no result for record %d", i)
		}
	}
	return out, now, nil
}

// Dead keeps a dead letter, as that of store.Store.
func (g *Gateway) Dead(ctx context.Context, deadLetter store.DeadLetter) error {
	ctx, cancel := context.WithTimeout(forPublisher(ctx), attempt)
	defer cancel()
	reply, err := g.api.Dead(ctx, &protos.DeadRequest{Id: deadLetter.ID, Reason: deadLetter.Reason, Body: deadLetter.Body})
	if err != nil {
		return fmt.Errorf("sending dead letter %q to the gateway: %w", deadLetter.ID, err)
	}
	ReportDropped(ctx, int(reply.GetDropped()))
	return nil
}

// History implements sink.History.
func (g *Gateway) History(ctx context.Context, after int64) ([]record.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	reply, err := g.api.History(ctx, &protos.HistoryRequest{After: after})
	if err != nil {
		return nil, fmt.Errorf("reading the history of the node from the gateway: %w", err)
	}
	out := make([]record.Record, len(reply.GetRecords()))
	for i, doc := range reply.GetRecords() {
		var err error
		if out[i], err = record.Decode(doc); err != nil {
			return nil, fmt.Errorf("decoding a record of the node's history: %w", err)
		}
	}
	return out, nil
}

// Close ends the connections.
func (g *Gateway) Close() error {
	if err := g.conn.Close(); err != nil {
		return fmt.Errorf("closing the connection to the gateways: %w", err)
	}
	return nil
}

// forPublisher hands the token of a publisher's own request on; a spool's batches
// come without one.
func forPublisher(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	if values := md.Get("authorization"); len(values) == 1 {
		return metadata.AppendToOutgoingContext(ctx, publisherHeader, values[0])
	}
	return ctx
}

// token is the path of a file with a bearer token.
type token string

// GetRequestMetadata reads the token as it is now.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	data, err := os.ReadFile(string(t))
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "reading the token for the gateway: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(data))}, nil
}

// RequireTransportSecurity is true: a token stands for a node.
func (token) RequireTransportSecurity() bool { return true }

// renewed is TLS whose files are read again for each connection, because they are
// renewed.
type renewed struct{ cfg Config }

// ClientHandshake proves the gateway.
func (r renewed) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conf, err := r.cfg.tls()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(conf).ClientHandshake(ctx, conf.ServerName, conn)
}

// ServerHandshake is not for a client.
func (renewed) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for connectors only")
}

// Info describes the credentials.
func (renewed) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns the same credentials, which hold no state.
func (r renewed) Clone() credentials.TransportCredentials { return r }

// OverrideServerName has no meaning: the name is configured.
func (renewed) OverrideServerName(string) error { return nil }

// historyOf selects the records of a node that may show in its conditions.
func historyOf(node string) record.Selector {
	return record.Selector{Name: "NodeHistory", Node: node, Strategy: record.Process}
}

// History is a page of a node's history in the store.
func History(ctx context.Context, s interface {
	List(ctx context.Context, q store.Query) ([]record.Record, error)
}, node string, after int64, limit int,
) ([]record.Record, error) {
	var more bool // who asks gets a page that is bounded by bytes; an empty one is the end
	return s.List(ctx, store.Query{Selector: historyOf(node), After: after, Limit: limit, More: &more})
}

// OtherContent is why a store refuses a record.
const OtherContent = "its id is stored with other content, or the store cannot hold it"

type listenerKey struct{}

// Listen returns a context of Append with a callback. A Place calls it with the reason for
// which it refuses a record, where there is more to report than OtherContent. The goroutine
// that called Append runs the callback, before Append returns.
func Listen(ctx context.Context, refused func(id, problem string)) context.Context {
	return context.WithValue(ctx, listenerKey{}, refused)
}

// ReportRefusal calls the callback of Listen, if any, with the reason of a refusal.
func ReportRefusal(ctx context.Context, id, problem string) {
	if refused, ok := ctx.Value(listenerKey{}).(func(id, problem string)); ok {
		refused(id, problem)
	}
}

type droppedKey struct{}

// ListenDropped returns a context of Dead with a callback, which a Place calls with the
// number of dead letters of the node that are gone since.
func ListenDropped(ctx context.Context, dropped func(n int)) context.Context {
	return context.WithValue(ctx, droppedKey{}, dropped)
}

// ReportDropped calls the callback of ListenDropped, if any, when dead letters are gone.
func ReportDropped(ctx context.Context, n int) {
	if dropped, ok := ctx.Value(droppedKey{}).(func(n int)); ok && n > 0 {
		dropped(n)
	}
}

type resetKey struct{}

// WithReset returns a context of Append which marks that somebody has ended faults of the
// node: what is appended repeats nothing that was before.
func WithReset(ctx context.Context) context.Context { return context.WithValue(ctx, resetKey{}, true) }

// IsReset reports whether a context is one of WithReset.
func IsReset(ctx context.Context) bool {
	reset, _ := ctx.Value(resetKey{}).(bool)
	return reset
}
