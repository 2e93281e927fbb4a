package conformance_test

import (
	"bytes"
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/pythonenv"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The example in Go. tests/outside builds it against the module api alone.
func TestGoExample(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "rack-plugin")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/nvidia/nvsentinel/examples/go-plugin")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	conforms(t, func() *exec.Cmd { return exec.Command(binary) })
}

// The example in Python, with its stubs made from the contract.
func TestPythonExample(t *testing.T) {
	python := filepath.Join(pythonenv.Programs(t, "python-plugin.sh"), "python")
	stubs := t.TempDir()
	const contract = "../../janitor/protos/v1"
	protoc := exec.CommandContext(t.Context(), python, "-m", "grpc_tools.protoc", "-I", contract,
		"--python_out="+stubs, "--grpc_python_out="+stubs, "csp_plugin.proto")
	if out, err := protoc.CombinedOutput(); err != nil {
		t.Fatalf("making the stubs: %v\n%s", err, out)
	}
	conforms(t, func() *exec.Cmd {
		cmd := exec.Command(python, "../../examples/python-plugin/plugin.py")
		cmd.Env = append(os.Environ(), "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	})
}

// conforms runs the conformance suite, then what is the examples' own.
func conforms(t *testing.T, command func() *exec.Cmd) {
	t.Helper()
	plugintest.Run(t, func(t *testing.T) *plugintest.Bench {
		r, url := newRack(t, "a", "b")
		p := &example{t: t, command: command, args: []string{"--controller", url, "--caller="}}
		t.Cleanup(p.kill)
		return &plugintest.Bench{
			Conn: p.start(), Node: "a", Other: "b", Missing: "c",
			BootID:  func(_ *testing.T, node string) string { return "boot-" + strconv.Itoa(r.reboots(node)) },
			Reboots: func(_ *testing.T, node string) int { return r.reboots(node) },
			Restart: func(*testing.T) grpc.ClientConnInterface { p.kill(); return p.start() },

			RebootTimeout: 2 * time.Minute,
		}
	})
	t.Run("it knows its caller and speaks TLS", func(t *testing.T) { guards(t, command) })
	t.Run("a 404 that is not the controller's says nothing of the machine", func(t *testing.T) {
		r, url := newRack(t, "a")
		r.astray = 2
		p := &example{t: t, command: command, args: []string{"--controller", url, "--caller="}}
		t.Cleanup(p.kill)
		client := v1.NewCSPPluginServiceClient(p.start())
		if _, err := client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: "a", IdempotencyKey: "k"}, grpc.WaitForReady(true)); status.Code(err) != codes.Unknown {
			t.Errorf("a signal: %v, want Unknown", err)
		}
		if _, err := client.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: "a"}); status.Code(err) != codes.Unknown {
			t.Errorf("whether it is ready: %v, want Unknown", err)
		}
	})
	t.Run("a busy controller is told with RetryInfo", func(t *testing.T) {
		r, url := newRack(t, "a")
		r.busy = 1
		p := &example{t: t, command: command, args: []string{"--controller", url, "--caller="}}
		t.Cleanup(p.kill)
		_, err := v1.NewCSPPluginServiceClient(p.start()).SendRebootSignal(t.Context(),
			&v1.SendRebootSignalRequest{NodeName: "a", IdempotencyKey: "k"}, grpc.WaitForReady(true))
		s := status.Convert(err)
		if s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
			t.Fatalf("a busy controller: %v with %v, want ResourceExhausted with RetryInfo", err, s.Details())
		}
		info, ok := s.Details()[0].(*errdetails.RetryInfo)
		if !ok || info.GetRetryDelay().AsDuration() != 10*time.Second {
			t.Errorf("the detail is %v, want a RetryInfo of 10s", s.Details()[0])
		}
	})
}

// example is a plugin in a process of its own.
type example struct {
	t       *testing.T
	command func() *exec.Cmd
	args    []string
	address string
	// tls is spoken; nil speaks plain text.
	tls    *tls.Config
	cmd    *exec.Cmd
	output *bytes.Buffer
}

func (e *example) start() grpc.ClientConnInterface {
	e.t.Helper()
	if e.address == "" {
		dir, err := os.MkdirTemp("", "example") // the path of a socket is bounded
		if err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { _ = os.RemoveAll(dir) })
		e.address = "unix://" + filepath.Join(dir, "s")
	}
	e.cmd, e.output = e.command(), &bytes.Buffer{}
	e.cmd.Args = append(append(e.cmd.Args, "--listen", e.address), e.args...)
	e.cmd.Stdout, e.cmd.Stderr = e.output, e.output
	if err := testkit.StartChild(e.cmd); err != nil {
		e.t.Fatal(err)
	}
	transport := insecure.NewCredentials()
	if e.tls != nil {
		transport = credentials.NewTLS(e.tls)
	}
	conn, err := grpc.NewClient(e.address, grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (e *example) kill() {
	if e.cmd == nil {
		return
	}
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
	e.cmd = nil
	if e.t.Failed() {
		e.t.Logf("the plugin said:\n%s", e.output)
	}
}
