// Package cloudtest tries a plugin of a cloud as a process, against a fake of the
// cloud's API and a real API server.
package cloudtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// Pace is how a fake's operations go.
type Pace string

// Paces.
const (
	// Soon: over when they were asked about a few times.
	Soon Pace = ""
	// Held: not over.
	Held Pace = "held"
	// Failing: over, and failed.
	Failing Pace = "failing"
	// Forgotten: the cloud knows them no more.
	Forgotten Pace = "forgotten"
)

// Cloud is a fake of a provider's API that records its calls.
type Cloud interface {
	http.Handler
	// Add adds a running machine that the cloud knows by a host name and an address,
	// and returns its spec.providerID.
	Add(name, address string) string
	// Tag gives a machine a tag.
	Tag(machine, key, value string)
	// OperationCounts is how often a machine was really rebooted and terminated.
	OperationCounts(machine string) (reboots, terminations int)
	// Pace sets how operations go from now on.
	Pace(p Pace)
	// Revoke makes the plugin's credentials worthless.
	Revoke()
}

// Plugin is how a plugin is run and what it runs against.
type Plugin struct {
	// Open makes a cloud, which calls rebooted for each reboot, holding no lock.
	Open func(t *testing.T, rebooted func(machine string)) Cloud
	// Start is the plugin's command line and environment for a cloud at url. The
	// certificate of https is in the file of SSL_CERT_FILE already.
	Start func(t *testing.T, cloud Cloud, url string) (args, env []string)
	// TLS makes url an https one.
	TLS bool
	// NoRequestIDs: the cloud repeats a reboot that is sent again. The janitor does not
	// send it again once the boot shows it.
	NoRequestIDs bool
	// Kinds are the kinds of names that the plugin knows, the first that of Add's name.
	Kinds []string
}

// AsPlugin in the environment makes the test binary the plugin, so that it can be
// killed.
const AsPlugin = "TEST_RUN_AS_PLUGIN"

// Main is a TestMain.
func Main(m *testing.M, plugin func()) {
	if _, ok := os.LookupEnv(AsPlugin); ok {
		plugin()
	}
	os.Exit(localcluster.Main(m)) //nolint:forbidigo // the end of a TestMain
}

// world is a cluster's namespace with two nodes, whose machines are in a fake
// cloud, and the plugin as a process.
type world struct {
	plugin    Plugin
	cluster   *localcluster.Cluster
	namespace string
	cloud     Cloud
	machines  map[string]string // by node
	nodes     map[string]string // by machine
	boots     map[string]int    // of machines
	reboots   sync.WaitGroup
	addresses map[string]string // of machines
	more      []string          // arguments of the plugin
	dir, url  string
	output    testkit.Output
	mark      int // how much of output is of earlier processes

	mu  sync.Mutex
	cmd *exec.Cmd
	// strike, if it is there, is asked about each request to the cloud.
	strike func(r *http.Request) blow
}

// blow is what hits the plugin at one request.
type blow int

const (
	none blow = iota
	before
	after
)

func newWorld(t *testing.T, p Plugin) *world {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	w := &world{plugin: p, cluster: cluster, namespace: cluster.Namespace(t), machines: map[string]string{}, nodes: map[string]string{}, boots: map[string]int{}, addresses: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	w.cloud = p.Open(t, func(machine string) { w.rebooted(ctx, t, machine) })
	t.Cleanup(func() { cancel(); w.reboots.Wait() })
	w.serve(t)
	for i, name := range []string{"a", "b"} {
		w.join(t, w.node(name), fmt.Sprintf("10.0.0.%d", i+1))
	}
	t.Cleanup(func() { w.kill(t); w.leave(t) })
	return w
}

// leave removes the Nodes, whose machines no other cloud knows.
func (w *world) leave(t *testing.T) {
	for node := range w.machines {
		if err := w.cluster.DeleteNode(context.WithoutCancel(t.Context()), node); err != nil {
			t.Error(err)
		}
	}
}

// serve serves the cloud, with what strikes the plugin at its requests.
func (w *world) serve(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "csp")
	if err != nil {
		t.Fatal(err)
	}
	w.dir = dir
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := httptest.NewUnstartedServer(http.HandlerFunc(w.handle))
	if !w.plugin.TLS {
		server.Start()
	} else {
		server.StartTLS()
		writeCertificate(t, filepath.Join(dir, "ca.pem"), server)
	}
	t.Cleanup(server.Close)
	w.url = server.URL
}

func (w *world) handle(out http.ResponseWriter, r *http.Request) {
	hit := none
	w.mu.Lock()
	if w.strike != nil {
		hit = w.strike(r)
	}
	w.mu.Unlock()
	switch hit {
	case none:
		w.cloud.ServeHTTP(out, r)
		return
	case after:
		w.cloud.ServeHTTP(httptest.NewRecorder(), r)
	case before:
	}
	w.mu.Lock()
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
	}
	w.mu.Unlock()
	panic(http.ErrAbortHandler)
}

func (w *world) node(name string) string { return w.namespace + "-" + name }

// join adds a machine and its Node.
func (w *world) join(t *testing.T, node, address string) {
	t.Helper()
	machine := w.cloud.Add(node, address)
	w.add(t, node, machine)
	w.addresses[machine] = address
	w.patch(t.Context(), t, node, fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, address))
}

// claim registers a Node by its own kubelet, which writes about itself everything that is
// true of another Node's machine. It returns the Node's name.
func (w *world) claim(t *testing.T, name, machine, address string) string {
	t.Helper()
	node := w.node(name)
	w.machines[node] = machine
	Register(t, w.cluster, node, machine, corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: w.nodes[machine]}},
		NodeInfo:  corev1.NodeSystemInfo{BootID: "boot-0"},
	})
	return node
}

// add adds the Node of a machine.
func (w *world) add(t *testing.T, node, machine string) {
	t.Helper()
	w.mu.Lock()
	w.machines[node] = machine
	if w.nodes[machine] == "" {
		w.nodes[machine] = node
	}
	w.mu.Unlock()
	if _, err := w.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: node, BootID: "boot-0", ProviderID: machine}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) patch(ctx context.Context, t *testing.T, node, patch string) {
	_, err := w.cluster.Client().CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

// rebooted has the Node of a machine show another boot, a while later.
func (w *world) rebooted(ctx context.Context, t *testing.T, machine string) {
	w.mu.Lock()
	w.boots[machine]++
	node, boot := w.nodes[machine], fmt.Sprintf("boot-%d", w.boots[machine])
	w.mu.Unlock()
	w.reboots.Add(1)
	time.AfterFunc(50*time.Millisecond, func() {
		defer w.reboots.Done()
		w.patch(ctx, t, node, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q}}}`, boot))
	})
}

// bootID is what a Node shows.
func (w *world) bootID(t *testing.T, node string) string {
	t.Helper()
	n, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Status.NodeInfo.BootID
}

// start starts the plugin and connects to it.
func (w *world) start(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	args, env := w.plugin.Start(t, w.cloud, w.url)
	socket := "unix://" + filepath.Join(w.dir, "s")
	args = append([]string{
		"--kubeconfig", w.cluster.AdminKubeconfig(), "--metrics-address", "127.0.0.1:0", "--listen", socket,
		"--plaintext", "--allow-unauthenticated", "--namespace", w.namespace,
	}, append(args, w.more...)...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), AsPlugin+"=1", "SSL_CERT_FILE="+filepath.Join(w.dir, "ca.pem")), env...)
	cmd.Stdout, cmd.Stderr = &w.output, &w.output
	w.mark = len(w.output.String())
	if err := testkit.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.cmd = cmd
	w.mu.Unlock()
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kill ends the plugin as a power cut would.
func (w *world) kill(t *testing.T) {
	w.mu.Lock()
	cmd := w.cmd
	w.cmd = nil
	w.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if t.Failed() {
		t.Logf("the plugin said:\n%s", w.output.String())
	}
}

// serving finds where a process serves its probes.
var serving = regexp.MustCompile(`probe and metrics server started.*?(127\.0\.0\.1:\d+)`)
