package gateway_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// flooded is the environment variable that makes this program the gateway that
// TestMemoryUnderAFlood floods.
const flooded = "NVSENTINEL_GATEWAY_FLOODED"

// TestMemoryUnderAFlood: the process of a gateway with its default bounds, whose store
// somebody else has locked, takes so much memory at most (VmHWM), whatever is sent to it.
//
//	go test ./platform-connectors/internal/gateway -run TestMemoryUnderAFlood -v
func TestMemoryUnderAFlood(t *testing.T) {
	testkit.Long(t, "TestAFloodHoldsLittle does it in one process, with a smaller bound")
	program := built(t)
	for _, flood := range []struct{ nodes, calls, size, most int }{
		{1, 1, 1, 150 << 20},
		{30, 4, 15<<20 + 1<<19, 600 << 20},
		{150, 1, 1 << 20, 600 << 20},
		{150, 4, 1 << 20, 600 << 20},
	} {
		name := fmt.Sprintf("%d nodes, %d calls of %d KiB each", flood.nodes, flood.calls, flood.size>>10)
		t.Run(name, func(t *testing.T) {
			h, end := floodedGateway(t, program)
			var calls sync.WaitGroup
			for n := range flood.nodes {
				node, message, conn := fmt.Sprint("gpu-", n), &grpc.PreparedMsg{}, h.bare()
				var encoded sync.Once
				for range flood.calls {
					calls.Go(func() {
						stream, err := conn.NewStream(bearing(t, "authorization", of(node)), &grpc.StreamDesc{ClientStreams: true}, protos.Gateway_Append_FullMethodName)
						if err != nil {
							t.Error(err)
							return
						}
						encoded.Do(func() {
							if err := message.Encode(stream, request(t, node, flood.size)); err != nil {
								t.Error(err)
							}
						})
						if err := stream.SendMsg(message); err == nil {
							_ = stream.RecvMsg(&protos.AppendResponse{})
						}
					})
				}
			}
			calls.Wait()
			peak := end()
			t.Logf("VmHWM %d MiB", peak>>20)
			if peak > flood.most {
				t.Errorf("want %d MiB at most", flood.most>>20)
			}
		})
	}
}

// built is this program without the race detector, which takes up to ten times the
// memory of what it watches.
func built(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "gateway.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".")
	// As the services are built (tests/programs), so that what they need is compiled already.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -gcflags=all=-dwarf=false -tags=grpcnotrace")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the gateway: %v\n%s", err, out)
	}
	return program
}

// floodedGateway starts the gateway; end ends it and returns its peak memory.
func floodedGateway(t *testing.T, program string) (h *hall, end func() int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestFloodedGateway$", "-test.timeout=10m")
	// As the chart has it: nine tenths of 2 GiB.
	cmd.Env = append(os.Environ(), flooded+"="+t.TempDir(), "GOMEMLIMIT=1932735283")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h = &hall{t: t}
	lines := bufio.NewReader(out)
	if _, err := fmt.Fscanln(lines, &h.address); err != nil {
		t.Fatalf("starting the gateway: %v", err)
	}
	return h, func() (peak int) {
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscanln(lines, &peak); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return peak
	}
}

// TestFloodedGateway is the gateway, as a process of its own.
func TestFloodedGateway(t *testing.T) {
	dir := os.Getenv(flooded)
	if dir == "" {
		t.Skip("TestMemoryUnderAFlood starts it")
	}
	path := dir + "/records.db"
	h := newHall(t, func(g *gateway.Gateway, l *gateway.Limits) {
		g.Store = &away{Store: storetest.Open(t, "sqlite://"+path, storeopen.Options{})}
		g.PerNode, g.Memory = 4, gateway.NewMemory(64<<20)
		*l = gateway.Limits{Connections: 20000, PerNode: 8, PerAddress: 200}
		g.Callers.PerAddress = 200
	})
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.address)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
	fmt.Println(peakMemory(t))
}

// peakMemory is the most that this process has had in memory, in bytes.
func peakMemory(t *testing.T) int {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("only Linux tells a process's peak: ", err)
	}
	for line := range strings.Lines(string(data)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
