package nodeconnector

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// BenchmarkIngest is what an event costs the connector that 64 publishers send one
// event per request, beside a gRPC server that does nothing: events a second, and the
// processor time of this process alone, since publishers and the API server are in
// another one. Spool, fault set and conditions are real, the store discards.
//
//	go test ./internal/nodeconnector -run '^$' -bench Ingest -benchtime 50000x
func BenchmarkIngest(b *testing.B) {
	b.Run("nothing", func(b *testing.B) {
		socket := shortSocket(b)
		l, err := net.Listen("unix", socket)
		if err != nil {
			b.Fatal(err)
		}
		server := grpc.NewServer()
		protos.RegisterPlatformConnectorServer(server, silent{})
		go func() { _ = server.Serve(l) }()
		b.Cleanup(server.Stop)
		publish(b, newWorld(b), socket)
	})
	b.Run("connector", func(b *testing.B) {
		defer debug.SetGCPercent(debug.SetGCPercent(Default().HeapGrowth)) // as the process has it under load
		socket, dir, world := shortSocket(b), b.TempDir(), newWorld(b)
		daemon.RunForTest(silentBenchmark{b}, "node-connector", Default(), discarding, "--node-name="+benchNode, "--socket="+socket,
			"--wal-dir="+filepath.Join(dir, "spool"), "--kubeconfig="+world.kubeconfig(b, dir), "--log-level=error")
		publish(b, world, socket)
	})
}

// publish has the world send b.N events and measures this process meanwhile.
func publish(b *testing.B, w *world, socket string) {
	w.dial(b, socket, b.N)
	b.ResetTimer()
	before, began := spent(b), time.Now()
	w.send(b)
	took, used := time.Since(began), spent(b)-before
	b.StopTimer()
	b.ReportMetric(float64(b.N)/took.Seconds(), "events/s")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/event")
}

// spent is the processor time of this process.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// silent answers every request at once and does nothing.
type silent struct {
	protos.UnimplementedPlatformConnectorServer
}

func (silent) HealthEventOccurredV1(context.Context, *protos.HealthEvents) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// discarding wires a connector whose store takes everything and keeps nothing.
func discarding(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	return build(ctx, d, cfg, func() (destination, error) { return discard{}, nil })
}

type discard struct{}

func (discard) Append(_ context.Context, records []record.Record) ([]store.AppendResult, error) {
	for _, r := range records {
		_ = record.Content(r) // every store asks for it
	}
	out := make([]store.AppendResult, len(records))
	for i := range out {
		out[i] = store.Appended
	}
	return out, nil
}

func (d discard) AppendTo(ctx context.Context, server string, records []record.Record) ([]store.AppendResult, string, error) {
	results, err := d.Append(ctx, records)
	return results, server, err
}

func (discard) History(context.Context, int64) ([]record.Record, error) { return nil, nil }

func (discard) Dead(context.Context, store.DeadLetter) error { return nil }

func (discard) Close() error { return nil }

// silentBenchmark is a benchmark whose service logs nowhere.
type silentBenchmark struct{ *testing.B }

func (silentBenchmark) Output() io.Writer { return io.Discard }

// shortSocket is a path for a socket, which has to be short.
func shortSocket(b *testing.B) string {
	dir, err := os.MkdirTemp("", "nc")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
