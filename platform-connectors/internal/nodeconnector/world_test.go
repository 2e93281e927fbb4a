package nodeconnector

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report"
)

const (
	benchNode  = "gpu-7"
	publishers = 64
)

// asWorld makes this test binary the world around a connector: its publishers and its
// API server.
const asWorld = "NODECONNECTOR_TEST_WORLD"

func TestMain(m *testing.M) {
	if os.Getenv(asWorld) == "" {
		os.Exit(m.Run())
	}
	if err := beWorld(os.Stdin, os.Stdout); err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// world is that process.
type world struct {
	in  io.Writer
	out *bufio.Reader
	api string
}

func newWorld(b *testing.B) *world {
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asWorld+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	w := &world{in: in, out: bufio.NewReader(out)}
	w.api = w.answer(b)
	return w
}

// sendLine sends a line, and returns the answer.
func (w *world) sendLine(b *testing.B, line string) string {
	if _, err := fmt.Fprintln(w.in, line); err != nil {
		b.Fatal(err)
	}
	return w.answer(b)
}

func (w *world) answer(b *testing.B) string {
	line, err := w.out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (w *world) dial(b *testing.B, socket string, events int) {
	w.sendLine(b, fmt.Sprint(socket, " ", events))
}

func (w *world) send(b *testing.B) { w.sendLine(b, "send") }

// kubeconfig is the path of a file for its API server.
func (w *world) kubeconfig(b *testing.B, dir string) string {
	path := filepath.Join(dir, "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"` + w.api +
		`"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// beWorld answers line by line: "<socket> <events>" prepares, "send" publishes.
func beWorld(in io.Reader, out io.Writer) error {
	api := httptest.NewServer(http.HandlerFunc(oneNode))
	defer api.Close()
	fmt.Fprintln(out, api.URL)
	lines := bufio.NewReader(in)
	for {
		var socket string
		var events int
		if _, err := fmt.Fscanln(lines, &socket, &events); err != nil {
			return err
		}
		send, err := prepare(socket, events)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "prepared")
		if _, err := lines.ReadString('\n'); err != nil {
			return err
		}
		if err := send(); err != nil {
			return err
		}
		fmt.Fprintln(out, "sent")
	}
}

// prepare makes a connection per publisher, on which each has sent one event.
func prepare(socket string, events int) (send func() error, err error) {
	clients, epochs := make([]protos.PlatformConnectorClient, publishers), make([]string, publishers)
	for i := range clients {
		conn, err := report.Dial(socket, "")
		if err != nil {
			return nil, err
		}
		clients[i], epochs[i] = protos.NewPlatformConnectorClient(conn), uuid.NewString()
		if err := sendOne(clients[i], epochs[i], -i); err != nil {
			return nil, err
		}
	}
	return func() error {
		var all errgroup.Group
		for p := range publishers {
			all.Go(func() error {
				for n := p; n < events; n += publishers {
					if err := sendOne(clients[p], epochs[p], n); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return all.Wait()
	}, nil
}

// sendOne sends the n-th fault: one of 16 codes on one of 8 GPUs, no repeat of another.
func sendOne(client protos.PlatformConnectorClient, epoch string, n int) error {
	gpu := max(n, 0) % 8
	_, err := client.HealthEventOccurredV1(context.Background(), &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{{
		Version: 1, Id: uuid.Must(uuid.NewV7()).String(), Agent: "syslog-health-monitor", ComponentClass: "GPU",
		CheckName: "SysLogsXIDError", NodeName: benchNode, GeneratedTimestamp: timestamppb.Now(),
		IsFatal: true, ErrorCode: []string{strconv.Itoa(60 + max(n, 0)/8%16)}, RecommendedAction: protos.RecommendedAction_CONTACT_SUPPORT,
		Message: fmt.Sprintf("NVRM: Xid (PCI:0000:%02x:00): 79, pid=%d, name=<unknown>, the GPU reported an error", gpu, n),
		EntitiesImpacted: []*protos.Entity{
			{EntityType: "PCI", EntityValue: fmt.Sprintf("0000:%02x:00", gpu)},
			{EntityType: "GPU_UUID", EntityValue: fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", gpu)},
		},
		Metadata: map[string]string{record.MetadataSeq: strconv.Itoa(n + publishers), record.MetadataSeqEpoch: epoch, record.MetadataSeqRuns: "run"},
	}}}, grpc.WaitForReady(true))
	return err
}

// oneNode is an API server with one Node that never changes.
func oneNode(w http.ResponseWriter, r *http.Request) {
	node := corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: benchNode, UID: "a", ResourceVersion: "1"},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: "s", BootID: "b"}},
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Get("watch") != "":
		<-r.Context().Done()
	case r.Method == http.MethodPatch:
		_ = json.NewEncoder(w).Encode(node)
	default:
		_ = json.NewEncoder(w).Encode(corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{node},
		})
	}
}
