package gateway_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// locked is a store that answers nobody until it is released, like one whose tables
// somebody else has locked.
type locked struct {
	*away
	free chan struct{}
	in   atomic.Int32 // calls that wait
}

func (l *locked) AppendTo(ctx context.Context, server string, records []record.Record) ([]store.AppendResult, string, error) {
	l.in.Add(1)
	defer l.in.Add(-1)
	select {
	case <-l.free:
		return l.away.AppendTo(ctx, server, records)
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

func lockStore(g *gateway.Gateway) *locked {
	inner, _ := g.Store.(*away)
	l := &locked{away: inner, free: make(chan struct{})}
	g.Store = l
	return l
}

// flood prepares calls of so many nodes with requests of so many bytes, and returns what
// sends them. What the calls of a node send is in memory once.
func (h *hall) flood(nodes, calls, size int) (send func()) {
	h.t.Helper()
	var sends []func()
	for n := range nodes {
		node, message := fmt.Sprint("gpu-", n), &grpc.PreparedMsg{}
		conn := h.bare()
		for i := range calls {
			stream, err := conn.NewStream(bearing(h.t, "authorization", of(node)), &grpc.StreamDesc{ClientStreams: true}, protos.Gateway_Append_FullMethodName)
			if err != nil {
				h.t.Fatal(err)
			}
			if i == 0 {
				if err := message.Encode(stream, request(h.t, node, size)); err != nil {
					h.t.Fatal(err)
				}
			}
			sends = append(sends, func() { _ = stream.SendMsg(message) })
		}
	}
	return func() {
		for _, s := range sends {
			go s()
		}
	}
}

// request has about so many bytes, in records that a gateway passes on.
func request(t *testing.T, node string, size int) *protos.AppendRequest {
	q := &protos.AppendRequest{}
	for got := 0; got < size; {
		d := doc(t, storetest.Record(node, func(r *record.Record) { r.Event.Message = strings.Repeat("m", 30<<10) }))
		q.Records, got = append(q.Records, d), got+len(d)
	}
	return q
}

// heap is how many bytes of the heap live.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestAFloodHoldsLittle: what waits for the store, or for memory, is not in memory: 40 MiB
// of requests take the bound and what flow control lets each send ahead.
func TestAFloodHoldsLittle(t *testing.T) {
	const nodes, calls, size, bound = 10, 4, 1 << 20, 4 << 20
	var l *locked
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
		l, g.PerNode, g.Memory = lockStore(g), calls, gateway.NewMemory(bound)
	})
	defer func() { close(l.free) }()
	send := h.flood(nodes, calls, size)
	before := heap()
	send()
	testkit.Until(t, time.Minute, func() bool {
		return h.gateway.Waiting() > 0 && h.inFlight(nodes) == nodes*calls && int(l.in.Load()) == bound/size-1
	})
	// A request is held as it came, as documents and as records: thrice, and a call
	// that waits has its window.
	most := before + 3*bound + nodes*calls*2*gateway.Window + 8<<20
	now := heap()
	t.Logf("%d MiB of requests take %d MiB of memory", nodes*calls*size>>20, (now-before)>>20)
	if now > most {
		t.Errorf("want %d MiB at most", (most-before)>>20)
	}
}

func (h *hall) inFlight(nodes int) (calls int) {
	for n := range nodes {
		calls += h.gateway.Busy(fmt.Sprint("gpu-", n))
	}
	return calls
}

// TestARequestWaitsForMemory: while there is none, flow control lets the caller send no
// more than a window, whatever size it declares for its request; when there is, it goes on.
func TestARequestWaitsForMemory(t *testing.T) {
	h := newHall(t)
	release, err := h.gateway.Memory.Acquire(t.Context(), gateway.MaxMessage)
	if err != nil {
		t.Fatal(err)
	}
	r := h.dialRaw(64 << 10)
	stream := r.call(protos.Gateway_Append_FullMethodName, of("gpu-7"), gateway.MaxMessage)
	testkit.Until(t, time.Minute, func() bool { return h.gateway.Waiting() == 1 })
	r.await()
	if n := r.let(stream); n != 0 {
		t.Errorf("the caller may send %d bytes beyond its window while there is no memory", n)
	}
	release()
	testkit.Until(t, time.Minute, func() bool { return r.let(stream) > 0 })
}

// TestRequestDeclaredSize: no length that a caller claims has the gateway hold more
// than it may.
func TestRequestDeclaredSize(t *testing.T) {
	h := newHall(t)
	r := h.dialRaw(64 << 10)
	huge := r.call(protos.Gateway_Append_FullMethodName, of("gpu-7"), 1<<31)
	short := r.call(protos.Gateway_Append_FullMethodName, of("gpu-8"), 4)
	for range gateway.Window/(16<<10) - 1 { // it sends more than it declared
		if err := r.WriteData(short, false, make([]byte, 16<<10)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Until(t, time.Minute, func() bool { return h.gateway.Metrics.Calls("append") == 2 })
	r.await()
	if n := r.let(huge) + r.let(short); n > gateway.Window {
		t.Errorf("the callers may send %d bytes more", n)
	}
	if n := h.gateway.InFlightBytes(); n != 0 {
		t.Errorf("%d bytes are held for nobody", n)
	}
}

// TestSlowSenderReservesLittle: a node whose requests never arrive keeps no memory from
// others; not even a request of the largest kind, which keeps it from large ones alone.
func TestSlowSenderReservesLittle(t *testing.T) {
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
		g.PerNode, g.Memory = 4, gateway.NewMemory(2*gateway.MaxMessage)
	})
	r := h.dialRaw(64 << 10)
	for range 4 {
		r.call(protos.Gateway_Append_FullMethodName, of("gpu-7"), gateway.MaxMessage)
	}
	testkit.Until(t, time.Minute, func() bool { return h.gateway.Waiting() == 3 })
	if n := h.gateway.InFlightBytes(); n > gateway.MaxMessage {
		t.Errorf("a node that sends nothing holds %d bytes", n)
	}
	if _, err := h.connector(of("gpu-8")).Append(t.Context(), []record.Record{storetest.Record("gpu-8")}); err != nil {
		t.Error(err)
	}
}

// TestCallsAreBounded: one call too many gets the time to try again, in a form that a
// client can read.
func TestCallsAreBounded(t *testing.T) {
	const most = 3
	var l *locked
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) { l, g.MaxCalls = lockStore(g), most })
	h.flood(most, 1, 1)()
	testkit.Until(t, time.Minute, func() bool { return h.inFlight(most) == most })
	_, err := protos.NewGatewayClient(h.bare()).History(bearing(t, "authorization", of("gpu-9")), &protos.HistoryRequest{})
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
		t.Errorf("one call more: %v", err)
	} else if info, ok := s.Details()[0].(*errdetails.RetryInfo); !ok || info.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("it is told %v", s.Details())
	}
	close(l.free)
	testkit.Until(t, time.Minute, func() bool { return h.inFlight(most) == 0 })
	if _, err := h.connector(of("gpu-9")).Append(t.Context(), []record.Record{storetest.Record("gpu-9")}); err != nil {
		t.Error(err)
	}
}

// TestUnreadResponses: a client that reads no responses loses its connection.
func TestUnreadResponses(t *testing.T) {
	h := newHall(t)
	large := storetest.Record("gpu-7", func(r *record.Record) {
		r.Event.Metadata = map[string]string{}
		for i := range 60 {
			r.Event.Metadata[fmt.Sprint("k", i)] = strings.Repeat("&", 4<<10)
		}
	})
	if _, err := h.connector(of("gpu-7")).Append(t.Context(), []record.Record{large}); err != nil {
		t.Fatal(err)
	}
	r := h.dialRaw(0)
	for n := 1; h.gateway.Metrics.Refused(gateway.Unread) == 0 && n <= 8; n++ {
		r.call(protos.Gateway_History_FullMethodName, of("gpu-7"), 0)
		testkit.Until(t, time.Minute, func() bool { return h.gateway.Metrics.Calls("history") == n })
	}
	<-r.ended
	if n := h.gateway.Metrics.Refused(gateway.Unread); n != 1 {
		t.Errorf("%d connections were ended, want 1", n)
	}
	reader := h.connector(of("gpu-7"))
	for range 10 {
		if _, err := reader.History(t.Context(), 0); err != nil {
			t.Errorf("who reads: %v", err)
		}
	}
	if n := h.gateway.Metrics.Refused(gateway.Unread); n != 1 {
		t.Errorf("%d connections were ended, that of a reader among them", n)
	}
}
