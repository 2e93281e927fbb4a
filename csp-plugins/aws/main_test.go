package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/ec2fake"
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

// world is a cluster's namespace with two nodes, whose instances are in a fake
// EC2, and the plugin as a process.
type world struct {
	cluster   *localcluster.Cluster
	namespace string
	fake      *ec2fake.Cloud
	endpoint  string
	socket    string
	more      []string // arguments of the plugin
	cmd       *exec.Cmd
	output    strings.Builder
}

func newWorld(t *testing.T, cluster *localcluster.Cluster) *world {
	t.Helper()
	w := &world{cluster: cluster, namespace: cluster.Namespace(t)}
	nodes := map[string]string{w.id("a"): w.namespace + "-a", w.id("b"): w.namespace + "-b"}
	w.fake = ec2fake.New(ec2fake.Account{AccessKey: "AKIDTEST", Secret: "secret"}, w.id("a"), w.id("b"))
	for id, name := range nodes {
		w.fake.Change(id, func(i *ec2fake.Instance) { i.DNS, i.IP = name, "10.0.0."+fmt.Sprint(len(name)) })
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-0", ProviderID: "aws:///us-west-2a/" + id}); err != nil {
			t.Fatal(err)
		}
	}
	// A machine shows its reboot a while later.
	var reboots sync.WaitGroup
	ctx := t.Context()
	w.fake.Rebooted = func(id string) {
		if nodes[id] == "" {
			return // a machine whose Node a test has added
		}
		boot := fmt.Sprintf("boot-%d", w.fake.Instance(id).Reboots)
		reboots.Add(1)
		time.AfterFunc(50*time.Millisecond, func() {
			defer reboots.Done()
			patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, boot)
			if _, err := cluster.Client().CoreV1().Nodes().Patch(ctx, nodes[id], types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(reboots.Wait)
	server := httptest.NewServer(w.fake)
	t.Cleanup(server.Close)
	w.reach(t, server.URL)
	return w
}

// reach gives the plugin an address of EC2 and a socket of its own.
func (w *world) reach(t *testing.T, endpoint string) {
	dir, err := os.MkdirTemp("", "aws")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.endpoint, w.socket = endpoint, "unix://"+filepath.Join(dir, "s")
	t.Cleanup(func() { w.kill(t) })
}

// id is the instance of a node of this world, and of no other.
func (w *world) id(node string) string {
	sum := sha256.Sum256([]byte(w.namespace + "-" + node))
	return "i-0" + hex.EncodeToString(sum[:8])
}

func (w *world) start(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	w.cmd = exec.Command(os.Args[0], append([]string{
		"--kubeconfig", w.cluster.AdminKubeconfig(), "--metrics-address", "off", "--listen", w.socket,
		"--plaintext", "--allow-unauthenticated", "--namespace", w.namespace, "--region", "us-west-2", "--ec2-endpoint", w.endpoint,
	}, w.more...)...)
	w.cmd.Env = append(os.Environ(), asPlugin+"=1", "AWS_ACCESS_KEY_ID=AKIDTEST", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/nowhere", "AWS_SHARED_CREDENTIALS_FILE=/nowhere")
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := testkit.StartChild(w.cmd); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(w.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kill ends it as a power cut would.
func (w *world) kill(t *testing.T) {
	if w.cmd == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	w.cmd = nil
	if t.Failed() {
		t.Logf("the plugin said:\n%s", &w.output)
	}
}

func TestConformance(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	plugintest.Run(t, func(t *testing.T) *plugintest.Bench {
		w := newWorld(t, cluster)
		return &plugintest.Bench{
			Conn: w.start(t), Node: w.namespace + "-a", Other: w.namespace + "-b", Missing: w.namespace + "-c",
			BootID: func(t *testing.T, node string) string {
				n, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return n.Status.NodeInfo.BootID
			},
			Reboots: func(_ *testing.T, node string) int {
				return w.fake.Instance(w.id(node[len(node)-1:])).Reboots
			},
			Claim:         func(t *testing.T, node string) string { return w.claim(t, "claimant", w.id(node[len(node)-1:])) },
			Restart:       func(t *testing.T) grpc.ClientConnInterface { w.kill(t); return w.start(t) },
			RebootTimeout: 2 * time.Minute,
		}
	})
}

// A plugin that can destroy machines does not start in clear text or for anybody
// unless it is configured to.
func TestSafeByDefault(t *testing.T) {
	err := Default().Validate()
	if err == nil || !strings.Contains(err.Error(), "--tls-cert-file") {
		t.Errorf("the default configuration: %v, want it to ask for a certificate", err)
	}
	c := Default()
	c.Plaintext, c.Callers = true, nil
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--callers") {
		t.Errorf("without callers: %v, want it to ask for them", err)
	}
}

// The manifest is taken by a real API server, and its arguments by the plugin.
func TestManifest(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nvsentinel"}}
	if _, err := cluster.Client().CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.Open("../../distros/helm/nvsentinel/manifests/deploy/csp-plugin-aws.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if err := cluster.Apply(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	deployment, err := cluster.Client().AppsV1().Deployments("nvsentinel").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	args := append(deployment.Spec.Template.Spec.Containers[0].Args, "--check-config")
	if code := daemon.RunForTest(t, name, Default(), build, args...).Wait(); code != 0 {
		t.Errorf("the arguments of the manifest: exit code %d, want 0", code)
	}
}
