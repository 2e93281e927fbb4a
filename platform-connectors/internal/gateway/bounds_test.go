package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestTokenFloodMakesFewReviews: the API server is asked about one token of an
// address, then no more for a while; who is known goes on meanwhile.
func TestTokenFloodMakesFewReviews(t *testing.T) {
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) { g.Callers.Clock = testkit.NewClock() })
	known := h.connector(of("gpu-7"))
	if _, err := known.Append(t.Context(), []record.Record{storetest.Record("gpu-7")}); err != nil {
		t.Fatal(err)
	}
	before := h.requests.Load()
	api := protos.NewGatewayClient(h.bare())
	var flood sync.WaitGroup
	for worker := range 8 {
		flood.Go(func() {
			for i := range 100 {
				_, _ = api.History(bearing(t, "authorization", fmt.Sprintf("junk-%d-%d", worker, i)), &protos.HistoryRequest{})
			}
		})
	}
	flood.Wait()
	if n := h.requests.Load() - before; n != 1 {
		t.Errorf("800 bad tokens of one address became %d questions, want 1", n)
	}
	if _, err := known.Append(t.Context(), []record.Record{storetest.Record("gpu-7")}); err != nil {
		t.Error(err)
	}
}

// TestSlowSenderIsDisconnected: a slow sender is disconnected, and delays no other sender.
func TestSlowSenderIsDisconnected(t *testing.T) {
	clk := testkit.NewClock()
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) { g.Clock = clk })
	var open []grpc.ClientStream
	for range 2 { // as many as a node may have
		stream, err := h.bare().NewStream(bearing(t, "authorization", of("gpu-7")), &grpc.StreamDesc{ClientStreams: true}, protos.Gateway_Append_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, stream)
	}
	testkit.Until(t, time.Minute, func() bool { return h.gateway.Busy("gpu-7") == 2 })
	if _, err := protos.NewGatewayClient(h.bare()).History(bearing(t, "authorization", of("gpu-7")), &protos.HistoryRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a third call of the node: %v", err)
	}
	if _, err := h.connector(of("gpu-8")).Append(t.Context(), []record.Record{storetest.Record("gpu-8")}); err != nil {
		t.Error(err)
	}
	testkit.Until(t, time.Minute, func() bool {
		clk.Step(time.Minute)
		return h.gateway.Busy("gpu-7") == 0
	})
	for _, stream := range open {
		if err := stream.RecvMsg(&protos.AppendResponse{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a slow call ended with %v", err)
		}
	}
}

// TestOneMadNode brings more than its share: it has to wait, and nobody else has.
func TestOneMadNode(t *testing.T) {
	clk := testkit.NewClock()
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
		g.Shares = &gateway.Shares{PerSecond: 10 << 10, Burst: 100 << 10, Clock: clk}
	})
	mad, other := h.connector(of("gpu-7")), h.connector(of("gpu-8"))
	bring := func(c *upstream.Gateway, node string) error {
		_, err := c.Append(t.Context(), []record.Record{storetest.Record(node, func(r *record.Record) { r.Event.Message = strings.Repeat("x", 30<<10) })})
		return err
	}
	passed := 0
	for range 20 {
		err := bring(mad, "gpu-7")
		if err == nil {
			passed++
		} else if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
	if passed != 4 {
		t.Errorf("%d records of 30 KiB passed with a burst of 100 KiB", passed)
	}
	if err := mad.Dead(t.Context(), store.DeadLetter{ID: "x", Body: make([]byte, 1024)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a dead letter beyond the share: %v", err)
	}
	if err := bring(other, "gpu-8"); err != nil {
		t.Errorf("the other node: %v", err)
	}
	clk.Step(4 * time.Second)
	if err := bring(mad, "gpu-7"); err != nil {
		t.Errorf("after a while: %v", err)
	}
}

// TestDeadLettersAreBounded: one at the bound is kept, a longer one is refused, and
// the call that brings it is no harm to the next.
func TestDeadLettersAreBounded(t *testing.T) {
	h := newHall(t)
	connector := h.connector(of("gpu-7"))
	for _, tc := range []struct {
		bytes int
		code  codes.Code
	}{{gateway.MaxDead, codes.OK}, {gateway.MaxDead + 1, codes.InvalidArgument}, {0, codes.OK}} {
		deadLetter := store.DeadLetter{ID: fmt.Sprint("of-", tc.bytes), Reason: "why", Body: make([]byte, tc.bytes)}
		if err := connector.Dead(t.Context(), deadLetter); status.Code(err) != tc.code {
			t.Errorf("a letter of %d bytes: %v, want %s", tc.bytes, err, tc.code)
		}
	}
}
