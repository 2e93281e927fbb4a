package ingest

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
)

// denyAll is an authenticator that lets nobody in.
type denyAll struct{ anyone }

func (denyAll) Enter(context.Context) (authz.Caller, bool, error) {
	return authz.Caller{}, false, &authn.Denied{Code: codes.Unauthenticated, Reason: "token-missing", Problem: "no token"}
}

// wireCodec sends bytes as they are and reads nothing.
type wireCodec struct{}

func (wireCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (wireCodec) Unmarshal([]byte, any) error { return nil }

func (wireCodec) Name() string { return "proto" }

func sendWire(t *testing.T, c *grpc.ClientConn, wire []byte) error {
	t.Helper()
	return c.Invoke(t.Context(), protos.PlatformConnector_HealthEventOccurredV1_FullMethodName, wire, &[]byte{}, grpc.ForceCodec(wireCodec{}))
}

// emptyOnes is a message that lists so many empty ones in a field.
func emptyOnes(field protowire.Number, n int) []byte {
	one := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), nil)
	return []byte(strings.Repeat(string(one), n))
}

// TestRequestsAreCountedBeforeTheyAreDecoded: two bytes on the wire are two
// hundred in memory. Nobody makes the server decode millions of them, and of who is
// not known it does not even take the message.
func TestRequestsAreCountedBeforeTheyAreDecoded(t *testing.T) {
	good, err := proto.Marshal(event())
	if err != nil {
		t.Fatal(err)
	}
	const most = maxBatch/2 - 1024
	one := func(lists []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), append(lists, good...))
	}
	tests := map[string]struct {
		wire  []byte
		known bool
		code  codes.Code
		cut   string
	}{
		"events of who is not known":    {emptyOnes(2, most), false, codes.Unauthenticated, ""},
		"events":                        {emptyOnes(2, most), true, codes.InvalidArgument, ""},
		"entities of one event":         {one(emptyOnes(10, most)), true, codes.OK, "entities"},
		"codes of one event":            {one(emptyOnes(9, most)), true, codes.OK, "codes"},
		"metadata of one event":         {one(emptyOnes(11, most)), true, codes.InvalidArgument, ""},
		"entities of a thousand events": {[]byte(strings.Repeat(string(one(emptyOnes(10, 1000))), 1000)), true, codes.InvalidArgument, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newServer(&memory{})
			if !tc.known {
				d.Authenticator = denyAll{}
			}
			conn := serve(t, d)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := sendWire(t, conn, tc.wire)
			runtime.ReadMemStats(&after)
			if status.Code(err) != tc.code {
				t.Errorf("answer %v, want %v", err, tc.code)
			}
			if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 40 {
				t.Errorf("it took %d MiB", n)
			}
			if tc.cut != "" && testutil.ToFloat64(d.Metrics.cuts.WithLabelValues(tc.cut)) != 1 {
				t.Errorf("the cut of %s is not counted", tc.cut)
			}
		})
	}
}

// shut is a spool that takes nothing until it is opened, and reports what came.
type shut struct {
	came chan int
	open chan struct{}
}

func (s shut) Append(_ context.Context, records []record.Record) error {
	s.came <- len(records)
	<-s.open
	return nil
}

// TestBytesInFlightAreBounded: of twenty large requests at once the server takes as
// many as there is capacity for; the others wait, and all are answered.
func TestBytesInFlightAreBounded(t *testing.T) {
	const requests, fit = 20, maxInFlight / maxBatch
	s := shut{make(chan int, requests), make(chan struct{})}
	d := newServer(nil)
	d.Spool = s
	d.ReadTimeout = func() <-chan time.Time { return nil } // the machine may be slow
	large := event()
	large.Message = strings.Repeat("m", maxBatch-1024)
	client := protos.NewPlatformConnectorClient(serve(t, d))
	answers := make(chan error, requests)
	for range requests {
		go func() {
			_, err := client.HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{large}})
			answers <- err
		}()
	}
	for range fit {
		<-s.came
	}
	if d.limits.bytes.TryAcquire(maxBatch) {
		t.Error("there is room for one more")
	}
	if len(s.came) > 0 {
		t.Error("one more was let through")
	}
	close(s.open)
	for range requests {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	testkit.Until(t, time.Minute, func() bool {
		return d.limits.bytes.TryAcquire(maxInFlight) && d.limits.receiving.TryAcquire(maxReceiving)
	})
}

// A request whose message does not come gives its place up.
func TestRequestReadTimeout(t *testing.T) {
	d := newServer(&memory{})
	late := make(chan time.Time)
	waits := make(chan struct{}, maxReceiving)
	d.ReadTimeout = func() <-chan time.Time { waits <- struct{}{}; return late }
	conn := serve(t, d)
	var streams []grpc.ClientStream
	for range maxReceiving {
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
			protos.PlatformConnector_HealthEventOccurredV1_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	for range streams {
		<-waits
	}
	if d.limits.receiving.TryAcquire(1) {
		t.Error("there is room for one more")
	}
	close(late)
	for _, s := range streams {
		if err := s.RecvMsg(&protos.HealthEvents{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("answer %v", err)
		}
	}
}

// TestConnectionsAreBounded: one too many is closed at once, and one that leaves
// makes space.
func TestConnectionsAreBounded(t *testing.T) {
	d := newServer(&memory{})
	conn := serve(t, d)
	probe := func(c *grpc.ClientConn) error {
		_, err := grpc_health_v1.NewHealthClient(c).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
		return err
	}
	if err := probe(conn); err != nil {
		t.Fatal(err)
	}
	var idle []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("unix", strings.TrimPrefix(conn.Target(), "unix://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range maxConnections - 1 {
		idle = append(idle, dial())
	}
	more := dial()
	if n, err := more.Read(make([]byte, 1)); err == nil {
		t.Errorf("one connection too many was told %d bytes", n)
	}
	if n := testutil.ToFloat64(d.Metrics.refused.WithLabelValues("too-many-connections")); n != 1 {
		t.Errorf("counted %v refused connections, want 1", n)
	}
	if err := probe(conn); err != nil {
		t.Errorf("a connection that was there: %v", err)
	}
	idle[0].Close()
	next, err := grpc.NewClient(conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := probe(next); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}
