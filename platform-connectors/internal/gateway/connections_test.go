package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestNodesBehindOneAddress: however many nodes share an address, each is served: what is
// bounded there are connections on which no token was verified.
func TestNodesBehindOneAddress(t *testing.T) {
	h := newHall(t, func(_ *gateway.Gateway, l *gateway.Limits) { l.PerAddress = 2 })
	for n := range 20 {
		node := fmt.Sprint("gpu-", n)
		if _, err := h.connector(of(node)).Append(t.Context(), []record.Record{storetest.Record(node)}); err != nil {
			t.Fatalf("the connector of %s: %v", node, err)
		}
	}
	if n := h.gateway.Metrics.Refused(gateway.ManyOfAddress); n != 0 {
		t.Errorf("%d connections were refused", n)
	}
}

// silent opens a connection and sends nothing on it.
func (h *hall) silent() net.Conn {
	h.t.Helper()
	conn, err := tls.Dial("tcp", h.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	return conn
}

func ended(conn net.Conn) error {
	_, err := io.Copy(io.Discard, conn)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		return err
	}
	return nil
}

// TestConnectionsOfAnAddressAreBounded: one more without a token gets the reason, on a call of
// its own; as many again are closed without a word and counted; and those on which nobody
// shows a token end, so that the address comes in again.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	clk := testkit.NewClock()
	h := newHall(t, func(g *gateway.Gateway, l *gateway.Limits) { g.Clock, l.PerAddress = clk, 2 })
	quiet := []net.Conn{h.silent(), h.silent()}
	_, err := h.connector(of("gpu-7")).Append(t.Context(), []record.Record{storetest.Record("gpu-7")})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(fmt.Sprint(err), "gateway.connectionsPerAddress") {
		t.Errorf("a third connection is told: %v", err)
	}
	quiet = append(quiet, h.silent())
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("one far beyond: %v, want it closed", err)
	}
	if n := h.gateway.Metrics.Refused(gateway.ManyOfAddress); n != 3 {
		t.Errorf("%d refusals are counted, want 3", n)
	}
	testkit.Until(t, time.Minute, clk.HasWaiters)
	clk.Step(gateway.Introduction)
	for _, c := range quiet {
		if err := ended(c); err != nil {
			t.Errorf("a connection without a token: %v, want its end", err)
		}
	}
	if n := h.gateway.Metrics.Refused(gateway.Anonymous); n != 2 {
		t.Errorf("%d ends for want of a token are counted, want 2", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := h.connector(of("gpu-8")).Append(ctx, []record.Record{storetest.Record("gpu-8")}); err != nil {
		t.Errorf("when they are gone: %v", err)
	}
}

// TestConnectionsOfANodeAreBounded: one connection too many of a node gets the reason.
func TestConnectionsOfANodeAreBounded(t *testing.T) {
	h := newHall(t, func(_ *gateway.Gateway, l *gateway.Limits) { l.PerNode = 2 })
	say := func(node string) error {
		_, err := h.connector(of(node)).Append(t.Context(), []record.Record{storetest.Record(node)})
		return err
	}
	for range 2 {
		if err := say("gpu-7"); err != nil {
			t.Fatal(err)
		}
	}
	if err := say("gpu-7"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "node gpu-7 has 2 connections") {
		t.Errorf("a third connection is told: %v", err)
	}
	if n := h.gateway.Metrics.Refused(gateway.ManyOfNode); n != 1 {
		t.Errorf("%d refusals are counted, want 1", n)
	}
	if err := say("gpu-8"); err != nil {
		t.Errorf("another node: %v", err)
	}
}

// TestConnectionsAreBounded of all together.
func TestConnectionsAreBounded(t *testing.T) {
	h := newHall(t, func(_ *gateway.Gateway, l *gateway.Limits) { l.Connections = 1 })
	if _, err := h.connector(of("gpu-7")).Append(t.Context(), []record.Record{storetest.Record("gpu-7")}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("one more: %v, want it closed", err)
	}
	if n := h.gateway.Metrics.Refused(gateway.TooMany); n != 1 {
		t.Errorf("%d refusals are counted, want 1", n)
	}
}

// TestABadTokenOfAnAddressDelaysNoKnownNode: behind a shared address somebody shows tokens
// that are refused; a node whose connection is known gets its new token verified.
func TestABadTokenOfAnAddressDelaysNoKnownNode(t *testing.T) {
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) { g.Callers.Clock = testkit.NewClock() })
	conn := protos.NewGatewayClient(h.bare())
	if _, err := conn.History(bearing(t, "authorization", of("gpu-7")), &protos.HistoryRequest{}); err != nil {
		t.Fatal(err)
	}
	other := protos.NewGatewayClient(h.bare())
	for range 2 {
		if _, err := other.History(bearing(t, "authorization", "junk"), &protos.HistoryRequest{}); err == nil {
			t.Fatal("junk is believed")
		}
	}
	renewed := of("gpu-7") + "~renewed"
	if _, err := conn.History(bearing(t, "authorization", renewed), &protos.HistoryRequest{}); err != nil {
		t.Errorf("a known node with a new token: %v", err)
	}
}

// slowTokens is a verifier that answers nobody before it is released.
type slowTokens struct {
	gateway.Tokens
	free chan struct{}
}

func (slowTokens) Cached(string) bool { return false }

func (s slowTokens) Identify(ctx context.Context, token string) (authn.Identity, error) {
	<-s.free
	return s.Tokens.Identify(ctx, token)
}

// TestCallsWithoutAVerdictAreBounded: while the API server does not answer, an address has so
// many calls waiting, and no more.
func TestCallsWithoutAVerdictAreBounded(t *testing.T) {
	const most = 3
	free := make(chan struct{})
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
		g.Callers.PerAddress, g.Callers.Connectors = most, slowTokens{g.Callers.Connectors, free}
	})
	ask := func(node string) error {
		_, err := protos.NewGatewayClient(h.bare()).History(bearing(t, "authorization", of(node)), &protos.HistoryRequest{})
		return err
	}
	answers := make(chan error, most)
	for n := range most {
		go func() { answers <- ask(fmt.Sprint("gpu-", n)) }()
	}
	testkit.Until(t, time.Minute, func() bool { return h.gateway.Callers.PendingReviews() == most })
	if err := ask("gpu-9"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one call more: %v", err)
	}
	close(free)
	for range most {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// TestConnectionsWithoutTokenBlockNoNode: when the gateway has as many connections as it
// may, the oldest without a token ends for each that comes; those of nodes stay.
func TestConnectionsWithoutTokenBlockNoNode(t *testing.T) {
	h := newHall(t, func(_ *gateway.Gateway, l *gateway.Limits) { l.Connections = 4 })
	known := h.connector(of("gpu-6"))
	say := func(s interface {
		Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error)
	}, node string,
	) {
		t.Helper()
		if _, err := s.Append(t.Context(), []record.Record{storetest.Record(node)}); err != nil {
			t.Errorf("the connector of %s: %v", node, err)
		}
	}
	say(known, "gpu-6")
	first := h.silent()
	for range 2 {
		h.silent()
	}
	say(h.connector(of("gpu-7")), "gpu-7")
	if err := ended(first); err != nil {
		t.Errorf("the oldest connection without a token: %v, want its end", err)
	}
	say(known, "gpu-6")
	if n := h.gateway.Metrics.Refused(gateway.TooMany); n != 1 {
		t.Errorf("%d refusals are counted, want 1", n)
	}
}
