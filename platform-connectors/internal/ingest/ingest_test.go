package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// memory is a spool that keeps records, or fails.
type memory struct {
	records []record.Record
	err     error
}

func (m *memory) Append(_ context.Context, records []record.Record) error {
	if m.err == nil {
		m.records = append(m.records, records...)
	}
	return m.err
}

// anyone is an authenticator that lets everybody in.
type anyone struct{}

func (anyone) Enter(context.Context) (authz.Caller, bool, error) {
	return authz.Caller{}, false, nil
}

func (anyone) Speak(authz.Caller, []record.Event) error { return nil }

func (anyone) SpeakEach(_ authz.Caller, events []record.Event) ([]*authn.Denied, error) {
	return make([]*authn.Denied, len(events)), nil
}

func newServer(m *memory) *Server {
	return &Server{
		NodeName: "gpu-7", Spool: m, Authenticator: anyone{}, Clock: clocktesting.NewFakePassiveClock(noon),
		Log:      slog.New(slog.DiscardHandler),
		Identity: func() record.NodeIdentity { return record.NodeIdentity{UID: "uid-7", BootID: "boot-1"} },
		Metrics:  NewMetrics(prometheus.NewRegistry()),
	}
}

// serve runs the server on a socket until the test ends, and connects to it.
func serve(t *testing.T, d *Server) *grpc.ClientConn {
	t.Helper()
	path := shortPath(t)
	l, err := Listen(t.Context(), path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, d) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// shortPath is a path for a socket: those of a test's own folder are too long.
func shortPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ingest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func event(change ...func(*protos.HealthEvent)) *protos.HealthEvent {
	p := &protos.HealthEvent{Agent: "agent", CheckName: "check", NodeName: "gpu-7", GeneratedTimestamp: timestamppb.New(noon)}
	for _, c := range change {
		c(p)
	}
	return p
}

func TestAnswers(t *testing.T) {
	foreign := event(func(p *protos.HealthEvent) { p.NodeName = "gpu-8" })
	tests := map[string]struct {
		events  []*protos.HealthEvent
		spool   error
		code    codes.Code
		message string
		reason  string
	}{
		"accepted":       {events: []*protos.HealthEvent{event(), event()}},
		"an empty batch": {},
		"malformed": {
			[]*protos.HealthEvent{event(), event(func(p *protos.HealthEvent) { p.CheckName = "" })}, nil,
			codes.InvalidArgument, "events[1].checkName: is empty", "missing",
		},
		"a foreign node": {
			[]*protos.HealthEvent{foreign}, nil, codes.PermissionDenied,
			`events[0].nodeName: is "gpu-8", and this is the connector of node "gpu-7"`, "foreign-node",
		},
		"spool full":   {[]*protos.HealthEvent{event()}, spool.ErrFull, codes.ResourceExhausted, "write-ahead log is full", "wal-full"},
		"spool closed": {[]*protos.HealthEvent{event()}, spool.ErrClosed, codes.Unavailable, "write-ahead log is closed", "unavailable"},
		"disk refuses": {
			[]*protos.HealthEvent{event()}, spool.ErrNotDurable, codes.Unavailable, "write-ahead log could not make the records durable", "unavailable",
		},
		"too late": {[]*protos.HealthEvent{event()}, context.DeadlineExceeded, codes.DeadlineExceeded, "context deadline exceeded", "unavailable"},
		"too large": {
			[]*protos.HealthEvent{event(func(p *protos.HealthEvent) { p.Message = strings.Repeat("x", maxBatch) })}, nil,
			codes.ResourceExhausted, "", "",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := &memory{err: tc.spool}
			d := newServer(m)
			client := protos.NewPlatformConnectorClient(serve(t, d))
			_, err := client.HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Events: tc.events})
			if status.Code(err) != tc.code || (tc.message != "" && status.Convert(err).Message() != tc.message) {
				t.Errorf("answer %v", err)
			}
			want := 0
			if tc.code == codes.OK {
				want = len(tc.events)
			}
			if len(m.records) != want {
				t.Errorf("%d records spooled, want %d", len(m.records), want)
			}
			if n := testutil.ToFloat64(d.Metrics.accepted.WithLabelValues("PROCESS")); n != float64(want) {
				t.Errorf("counted %v accepted events, want %d", n, want)
			}
			if tc.reason != "" && testutil.ToFloat64(d.Metrics.refused.WithLabelValues(tc.reason)) != 1 {
				t.Errorf("the refusal is not counted as %s", tc.reason)
			}
		})
	}
}

// wide is an authenticator whose callers publish events about all nodes.
type wide struct{ anyone }

func (wide) Enter(context.Context) (authz.Caller, bool, error) {
	return authz.Caller{}, true, nil
}

// A cluster-wide publisher gets to know what the store refuses for good: only at this
// answer it keeps the event as a dead letter.
func TestRefusalIsReturnedToClusterScopedPublisher(t *testing.T) {
	d := newServer(&memory{})
	d.Authenticator, d.Direct = wide{}, &memory{err: &forwarder.Taken{ID: "x", Records: 1}}
	d.IdentityOf = func(context.Context, string) record.NodeIdentity { return record.NodeIdentity{} }
	derived := event(func(p *protos.HealthEvent) { p.Id, p.NodeName = "6f1ed0c5-6c1b-5a54-9d0e-2f6d4f7a3b52", "gpu-8" })
	_, err := d.HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{derived}})
	if status.Code(err) != codes.InvalidArgument || testutil.ToFloat64(d.Metrics.refused.WithLabelValues("id-taken")) != 1 {
		t.Errorf("answer %v", err)
	}
	if n := testutil.ToFloat64(d.Metrics.accepted.WithLabelValues("PROCESS")); n != 0 {
		t.Errorf("%v events are counted as acknowledged", n)
	}
}

func TestRecordsOfTheServer(t *testing.T) {
	m := &memory{}
	d := newServer(m)
	given := "01958a5c-0000-7000-8000-000000000001"
	order := func(seq string) func(*protos.HealthEvent) {
		return func(p *protos.HealthEvent) {
			p.Id, p.Metadata = given, map[string]string{record.MetadataSeq: seq, record.MetadataSeqEpoch: "e"}
		}
	}
	_, err := d.HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{
		event(order("7")), event(order(fmt.Sprint(uint64(math.MaxInt64) + 1))), event(order("seven")),
		event(func(p *protos.HealthEvent) { p.RecommendedAction = 42 }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		Seq   uint64
		Epoch string
	}
	var got []place
	for _, r := range m.records {
		got = append(got, place{r.Seq, r.SeqEpoch})
		if !r.CreatedAt.Equal(noon) || r.Node.UID != "uid-7" || r.Node.BootID != "boot-1" || r.ID != r.Event.ID {
			t.Errorf("record %+v", r)
		}
	}
	if diff := cmp.Diff([]place{{7, "e"}, {}, {}, {}}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if m.records[0].ID != given {
		t.Errorf("id %s, want the publisher's", m.records[0].ID)
	}
	id, err := uuid.Parse(m.records[3].ID)
	if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		t.Errorf("the given id %s is no UUIDv7: %v", m.records[3].ID, err)
	}
	if seconds, _ := id.Time().UnixTime(); seconds != noon.Unix() {
		t.Errorf("the given id's time is %d, want %d", seconds, noon.Unix())
	}
	if n := testutil.ToFloat64(d.Metrics.cuts.WithLabelValues("unknown-action")); n != 1 {
		t.Errorf("counted %v unknown actions, want 1", n)
	}
}

func TestHealthService(t *testing.T) {
	answer, err := grpc_health_v1.NewHealthClient(serve(t, newServer(&memory{}))).Check(t.Context(),
		&grpc_health_v1.HealthCheckRequest{Service: "datamodels.PlatformConnector"})
	if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", answer, err)
	}
}

func TestListen(t *testing.T) {
	t.Run("a stale socket is replaced", func(t *testing.T) {
		path := shortPath(t)
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		dead.Close()
		l, err := Listen(t.Context(), path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("permissions: %v, %v", info, err)
		}
	})
	t.Run("a living socket is left alone", func(t *testing.T) {
		path := shortPath(t)
		alive, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer alive.Close()
		if l, err := Listen(t.Context(), path, 0o600); err == nil {
			l.Close()
			t.Error("took a socket that answers")
		}
	})
	t.Run("a socket is left alone whose process is too busy to answer", func(t *testing.T) {
		path := shortPath(t)
		busy, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(busy)
		if err := errors.Join(unix.Bind(busy, &unix.SockaddrUnix{Name: path}), unix.Listen(busy, 0)); err != nil {
			t.Fatal(err)
		}
		for err == nil { // until no further connection can wait to be taken
			var waiting net.Conn
			if waiting, err = net.Dial("unix", path); err == nil {
				defer waiting.Close()
			}
		}
		if l, err := Listen(t.Context(), path, 0o600); err == nil {
			l.Close()
			t.Error("took a socket at which a process listens")
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	})
	t.Run("a file is left alone", func(t *testing.T) {
		path := shortPath(t)
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Listen(t.Context(), path, 0o600); err == nil {
			l.Close()
			t.Error("took the place of a file")
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
			t.Errorf("the file is %q, %v", b, err)
		}
	})
}
