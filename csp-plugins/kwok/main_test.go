package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// asPlugin in the environment makes the test binary the plugin, so that it can
// be killed.
const asPlugin = "TEST_RUN_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
	}
	os.Exit(localcluster.Main(m))
}

// process is the plugin in a process of its own.
type process struct {
	t       *testing.T
	cluster *localcluster.Cluster
	dir     string
	address string
	cmd     *exec.Cmd
	logs    *bytes.Buffer
	extra   []string
}

func newProcess(t *testing.T, cluster *localcluster.Cluster, extra ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "kwok") // the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &process{t: t, cluster: cluster, dir: t.TempDir(), address: "unix://" + filepath.Join(dir, "s"), extra: extra}
	t.Cleanup(p.kill)
	return p
}

func (p *process) journal() string { return filepath.Join(p.dir, "journal.jsonl") }

func (p *process) start() grpc.ClientConnInterface {
	p.t.Helper()
	p.logs = &bytes.Buffer{}
	args := append([]string{
		"--kubeconfig", p.cluster.AdminKubeconfig(), "--metrics-address", "off", "--listen", p.address,
		"--journal-file", p.journal(), "--boot-id-dir", filepath.Join(p.dir, "machines"),
	}, p.extra...)
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), asPlugin+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.logs, p.logs
	if err := testkit.StartChild(p.cmd); err != nil {
		p.t.Fatal(err)
	}
	conn, err := grpc.NewClient(p.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kill ends it as a power cut would.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
	if p.t.Failed() {
		p.t.Logf("the plugin said:\n%s", p.logs)
	}
}

func (p *process) restart() grpc.ClientConnInterface {
	p.t.Helper()
	p.kill()
	return p.start()
}

// entries reads the journal.
func (p *process) entries(t *testing.T) []Entry {
	t.Helper()
	text, err := os.ReadFile(p.journal())
	if err != nil {
		t.Fatal(err)
	}
	var out []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func (p *process) reboots(t *testing.T, node string) int {
	t.Helper()
	n := 0
	for _, e := range p.entries(t) {
		if e.Node == node && e.Effect == Rebooted {
			n++
		}
	}
	return n
}

func bootID(t *testing.T, cluster *localcluster.Cluster, node string) string {
	t.Helper()
	n, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Status.NodeInfo.BootID
}

func TestConformance(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	plugintest.Run(t, func(t *testing.T) *plugintest.Bench {
		prefix := cluster.Namespace(t)
		for _, name := range []string{prefix + "-a", prefix + "-b"} {
			if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		p := newProcess(t, cluster, "--reboot-time", "100ms")
		return &plugintest.Bench{
			Conn: p.start(), Node: prefix + "-a", Other: prefix + "-b", Missing: prefix + "-c",
			BootID:        func(t *testing.T, node string) string { return bootID(t, cluster, node) },
			Reboots:       p.reboots,
			Restart:       func(*testing.T) grpc.ClientConnInterface { return p.restart() },
			RebootTimeout: 2 * time.Minute,
		}
	})
}

// Callers that were named are admitted by the API server's word, others not.
func TestCallersAreVerified(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := cluster.Namespace(t)
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: namespace}); err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, cluster, "--audience", "csp-plugin", "--callers", "system:serviceaccount:"+namespace+":janitor")
	client := v1.NewCSPPluginServiceClient(p.start())
	for _, tt := range []struct {
		account, audience string
		want              codes.Code
	}{
		{"", "", codes.Unauthenticated},
		{"janitor", "another", codes.Unauthenticated},
		{"stranger", "csp-plugin", codes.PermissionDenied},
		{"janitor", "csp-plugin", codes.OK},
	} {
		ctx := t.Context()
		if tt.account != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token(t, cluster, namespace, tt.account, tt.audience))
		}
		_, err := client.IsNodeReady(ctx, &v1.IsNodeReadyRequest{NodeName: namespace}, grpc.WaitForReady(true))
		if status.Code(err) != tt.want {
			t.Errorf("%q for %q: %v, want %s", tt.account, tt.audience, err, tt.want)
		}
	}
}

func token(t *testing.T, cluster *localcluster.Cluster, namespace, account, audience string) string {
	t.Helper()
	accounts := cluster.Client().CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	answer, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

func TestBadConfigurationIsNamed(t *testing.T) {
	running := daemon.RunForTest(t, name, Default(), build, "--kubeconfig", "/nowhere", "--journal-file", filepath.Join(t.TempDir(), "b"))
	if code := running.Wait(); code != 1 {
		t.Errorf("a kubeconfig that does not exist: exit code %d, want 1", code)
	}
	err := Config{RebootTime: -1, Server: cloud.Server{KeyFile: "k", Audience: "a"}}.Validate()
	for _, want := range []string{"--listen", "--journal-file", "--reboot-time", "--tls-cert-file", "--callers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
}
