package gateway_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway/gatewaytest"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const (
	connectors = gatewaytest.Connectors
	analyzer   = "system:serviceaccount:nvsentinel:health-events-analyzer"
)

func token(audience, account, node string) string { return gatewaytest.Token(audience, account, node) }

func of(node string) string { return token(gateway.Audience, connectors, node) }

// away is a store that can be made to fail.
type away struct {
	store.Store
	err    atomic.Pointer[error]
	failed atomic.Int32
}

func (a *away) AppendTo(ctx context.Context, server string, records []record.Record) ([]store.AppendResult, string, error) {
	if err := a.err.Load(); err != nil {
		a.failed.Add(1)
		return nil, "", *err
	}
	return a.Store.(store.Identified).AppendTo(ctx, server, records)
}

func (a *away) Server(ctx context.Context) (string, error) {
	return a.Store.(store.Identified).Server(ctx)
}

// hall is a gateway that listens, and what stands behind it.
type hall struct {
	t        *testing.T
	address  string
	ca       string
	store    *away
	requests *atomic.Int64
	gateway  *gateway.Gateway
	stop     context.CancelFunc
}

func newHall(t *testing.T, edit ...func(*gateway.Gateway, *gateway.Limits)) *hall {
	t.Helper()
	h := &hall{t: t, store: &away{Store: storetest.SQLite(t)}, requests: &atomic.Int64{}}
	review := func(audience string) *authn.Review {
		return authn.NewReview(gatewaytest.Reviews{OnReview: func() { h.requests.Add(1) }}, authn.Verification{
			Audience: audience, CacheTTL: time.Minute, Refused: time.Minute, AtOnce: 16,
		}, clock.RealClock{}, prometheus.NewRegistry())
	}
	h.gateway = &gateway.Gateway{
		Callers: &gateway.Callers{
			Connectors: review(gateway.Audience), Publishers: review(authn.Audience), Accounts: []string{connectors}, PerAddress: 100, Clock: clock.RealClock{},
			Policy: forwardpolicy.Policy{Agents: append(authz.DefaultAgents(), authz.Agent{Name: "health-events-analyzer", Account: analyzer, ClusterWide: true})},
		},
		Shares: &gateway.Shares{PerSecond: 1 << 20, Burst: 64 << 20, Clock: clock.RealClock{}},
		Store:  h.store, PerNode: 2, Memory: gateway.NewMemory(gateway.MaxMessage), MaxCalls: gateway.MaxCalls,
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Metrics: gateway.NewMetrics(prometheus.NewRegistry()),
	}
	limits := gateway.Limits{Connections: 200, PerNode: 100, PerAddress: 100}
	for _, e := range edit {
		e(h.gateway, &limits)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	var certificates gateway.Certificates
	certificates.Cert, certificates.Key = gatewaytest.Certificate(t)
	h.ca = certificates.Cert
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	done := make(chan error, 1)
	go func() { done <- gateway.Serve(ctx, l, h.gateway, certificates, limits) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// connector is the real client with a token.
func (h *hall) connector(token string) *upstream.Gateway {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		h.t.Fatal(err)
	}
	g, err := upstream.Open(upstream.Config{Address: h.address, TokenFile: file, CAFile: h.ca}, slog.New(slog.DiscardHandler))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { g.Close() })
	return g
}

// bare is a client of an attacker: any header, any message.
func (h *hall) bare() *grpc.ClientConn {
	h.t.Helper()
	conn, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	return conn
}

func bearing(t *testing.T, headers ...string) context.Context {
	for i := 1; i < len(headers); i += 2 {
		headers[i] = "Bearer " + headers[i]
	}
	return metadata.AppendToOutgoingContext(t.Context(), headers...)
}

func (h *hall) stored() []record.Record {
	h.t.Helper()
	all, err := h.store.List(h.t.Context(), store.Query{})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func doc(t *testing.T, r record.Record) []byte {
	t.Helper()
	b, err := record.AppendJSON(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
