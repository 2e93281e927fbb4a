package main

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloudtest"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/redfishfake"
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

// world is a cluster's namespace with two nodes, the BMCs of their machines, and
// the plugin as a process.
type world struct {
	cluster   *localcluster.Cluster
	namespace string
	uuids     map[string]string // by node
	dir       string
	config    strings.Builder
	cmd       *exec.Cmd
	output    testkit.Output
	reboots   sync.WaitGroup
}

func newWorld(t *testing.T, cluster *localcluster.Cluster) *world {
	t.Helper()
	w := &world{cluster: cluster, namespace: cluster.Namespace(t), uuids: map[string]string{}}
	for _, name := range []string{w.namespace + "-a", w.namespace + "-b"} {
		w.uuids[name] = uuid.NewString()
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-0", SystemUUID: w.uuids[name]}); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "redfish") // the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.dir = dir
	w.write(t, "username", "operator")
	w.write(t, "password", "secret")
	fmt.Fprintf(&w.config, "[defaults]\ncredentials = %q\ncaFile = %q\n", dir, filepath.Join(dir, "ca.crt"))
	t.Cleanup(w.reboots.Wait)
	t.Cleanup(func() { w.kill(t) })
	return w
}

func (w *world) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// bmc adds a [[bmc]] of a node.
func (w *world) bmc(t *testing.T, node string, server *httptest.Server, more string) {
	t.Helper()
	w.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	fmt.Fprintf(&w.config, "[[bmc]]\nnode = %q\naddress = %q\n%s\n", node, server.URL, more)
}

// came shows a reboot of a node's machine a while after it happened.
func (w *world) came(t *testing.T, node, boot string) {
	ctx := t.Context()
	patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, boot)
	if _, err := w.cluster.Client().CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

func (w *world) bootID(t *testing.T, node string) string {
	n, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Status.NodeInfo.BootID
}

func (w *world) start(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	w.write(t, "config.toml", w.config.String())
	socket := "unix://" + filepath.Join(w.dir, "s")
	w.cmd = exec.Command(os.Args[0], "--config", filepath.Join(w.dir, "config.toml"), "--kubeconfig", w.cluster.AdminKubeconfig(), "--metrics-address", "off",
		"--listen", socket, "--plaintext", "--allow-unauthenticated", "--namespace", w.namespace)
	w.cmd.Env = append(os.Environ(), asPlugin+"=1")
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := testkit.StartChild(w.cmd); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
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

func (w *world) bench(t *testing.T, reboots func(node string) int) *plugintest.Bench {
	return &plugintest.Bench{
		Conn: w.start(t), Node: w.namespace + "-a", Other: w.namespace + "-b", Missing: w.namespace + "-c",
		BootID:        w.bootID,
		Claim:         func(t *testing.T, node string) string { return w.claim(t, "claimant", node) },
		Reboots:       func(_ *testing.T, node string) int { return reboots(node) },
		Restart:       func(t *testing.T) grpc.ClientConnInterface { w.kill(t); return w.start(t) },
		RebootTimeout: 2 * time.Minute,
	}
}

// claim registers a Node by its own kubelet, which shows the system UUID of another's
// machine, and returns its name.
func (w *world) claim(t *testing.T, name, node string) string {
	t.Helper()
	claimant := w.namespace + "-" + name
	cloudtest.Register(t, w.cluster, claimant, "node://"+node, corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: node}},
		NodeInfo:  corev1.NodeSystemInfo{BootID: "boot-0", SystemUUID: w.uuids[node]},
	})
	return claimant
}

// show has a Node's own kubelet show another system UUID.
func (w *world) show(t *testing.T, node, uuid string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"systemUUID":%q}}}`, uuid)
	nodes := cloudtest.Kubelet(t, w.cluster, node).CoreV1().Nodes()
	if _, err := nodes.Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// system is the id of each machine at its fake BMC.
const system = "1"

// fakes gives each node a fake BMC.
func (w *world) fakes(t *testing.T) map[string]*redfishfake.BMC {
	t.Helper()
	all := map[string]*redfishfake.BMC{}
	for node, id := range w.uuids {
		fake := redfishfake.New(map[string]*redfishfake.System{system: {UUID: id, Power: "On", Offered: []string{"On", "ForceOff", "GracefulRestart", "ForceRestart"}}})
		fake.Reset = func(id string) {
			boot := fmt.Sprintf("boot-%d", len(fake.System(id).Resets))
			w.reboots.Add(1)
			time.AfterFunc(50*time.Millisecond, func() { defer w.reboots.Done(); w.came(t, node, boot) })
		}
		server := httptest.NewTLSServer(fake)
		t.Cleanup(server.Close)
		w.bmc(t, node, server, "")
		all[node] = fake
	}
	return all
}

func TestConformance(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	plugintest.Run(t, func(t *testing.T) *plugintest.Bench {
		w := newWorld(t, cluster)
		fakes := w.fakes(t)
		return w.bench(t, func(node string) int { return len(fakes[node].System(system).Resets) })
	})
}

// signal sends a reboot signal.
func signal(t *testing.T, conn grpc.ClientConnInterface, node, key string) error {
	t.Helper()
	_, err := v1.NewCSPPluginServiceClient(conn).SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: node, IdempotencyKey: key}, grpc.WaitForReady(true))
	return err
}

// A machine that is not certainly the node's is not signaled, and a machine whose
// last reset came after the key was first heard is not reset again.
func TestErrorMessages(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	w := newWorld(t, cluster)
	fakes := w.fakes(t)
	a, b := w.namespace+"-a", w.namespace+"-b"
	conn := w.start(t)
	resets := func(node string, want int) {
		t.Helper()
		if got := fakes[node].System(system).Resets; len(got) != want {
			t.Errorf("node %s: resets %v, want %d", node, got, want)
		}
	}
	// The BMC of a stands for another machine since somebody moved a cable.
	fakes[a].Change(system, func(s *redfishfake.System) { s.UUID = w.uuids[b] })
	if err := signal(t, conn, a, "k1"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("another machine: %v, want FailedPrecondition", err)
	}
	fakes[a].Change(system, func(s *redfishfake.System) { s.UUID = "" })
	if err := signal(t, conn, a, "k1"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a machine that shows no UUID: %v, want FailedPrecondition", err)
	}
	fakes[a].Change(system, func(s *redfishfake.System) { s.UUID = w.uuids[a] })
	resets(a, 0)

	// A BMC that is busy, in words of its vendor, is asked again under the same key.
	fakes[a].Reset = nil
	fakes[a].Fail("reset", redfishfake.Fault{Status: 400, Message: "iLO.2.37.UnableToModifyDuringSystemPOST"})
	if err := signal(t, conn, a, "k1"); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "iLO.2.37.UnableToModifyDuringSystemPOST") {
		t.Errorf("a busy BMC: %v, want Aborted with its message", err)
	}
	resets(a, 0)
	for range 2 {
		if err := signal(t, conn, a, "k1"); err != nil {
			t.Errorf("the same key again: %v", err)
		}
	}
	resets(a, 1)

	// The answer gets lost, and the machine takes long to boot.
	fakes[b].Reset = nil
	fakes[b].Change(system, func(s *redfishfake.System) { s.LastReset = "2026-11-20T10:00:00Z" })
	fakes[b].Fail("reset", redfishfake.Fault{Status: 500, After: true})
	if err := signal(t, conn, b, "k2"); status.Code(err) != codes.Unavailable {
		t.Errorf("a lost answer: %v, want Unavailable", err)
	}
	fakes[b].Change(system, func(s *redfishfake.System) { s.LastReset = "2026-11-20T10:00:30Z" })
	if err := signal(t, conn, b, "k2"); err != nil {
		t.Errorf("asked again: %v", err)
	}
	resets(b, 1)
	// A machine that is off is left alone.
	fakes[b].Change(system, func(s *redfishfake.System) { s.Power = "Off" })
	if err := signal(t, conn, b, "k3"); status.Code(err) != codes.Aborted {
		t.Errorf("a machine that is off: %v, want Aborted", err)
	}
	resets(b, 1)
	if _, err := v1.NewCSPPluginServiceClient(conn).SendTerminateSignal(t.Context(), &v1.SendTerminateSignalRequest{NodeName: a, IdempotencyKey: "t"}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a termination: %v, want Unimplemented", err)
	}
}

// A Node that shows the system UUID of another's machine gets nothing by it, and does not
// keep the other from being repaired: what proves a machine is the configuration and the
// BMC's own UUID. Only two BMCs with one UUID leave it undecided.
func TestClaims(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	w := newWorld(t, cluster)
	fakes := w.fakes(t)
	a, b := w.namespace+"-a", w.namespace+"-b"
	conn := w.start(t)
	refused := func(node, words string) {
		t.Helper()
		if err := signal(t, conn, node, "refusal of "+node); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), words) {
			t.Errorf("node %s: %v, want FailedPrecondition: %s", node, err, words)
		}
	}
	refused(w.claim(t, "new", a), "has no BMC")
	w.show(t, b, w.uuids[a])
	refused(b, "another machine")
	if err := signal(t, conn, a, "k1"); err != nil {
		t.Errorf("the node whose machine is claimed by two: %v", err)
	}
	if got := fakes[a].System(system).Resets; len(got) != 1 {
		t.Errorf("its machine: resets %v, want one", got)
	}
	testkit.Until(t, time.Minute, func() bool { // logged of both who claim it
		return strings.Count(w.output.String(), "machine claimed by another node") == 2
	})
	// Somebody wrote two lines for one machine.
	fakes[b].Change(system, func(s *redfishfake.System) { s.UUID = w.uuids[a] })
	refused(a, "is undecidable")
	refused(b, "is undecidable")
	if got := len(fakes[a].System(system).Resets) + len(fakes[b].System(system).Resets); got != 1 {
		t.Errorf("%d resets, want none but the first", got)
	}
}

// A plugin that can reset machines does not start in clear text or for anybody
// unless it is configured to.
func TestSafeByDefault(t *testing.T) {
	err := Default().Validate()
	for _, want := range []string{"--tls-cert-file", "[[bmc]] is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the default configuration: %v, want it to ask for %s", err, want)
		}
	}
	if slices.Contains(Default().Defaults.Reset, FullPowerCycle) || Default().Defaults.PowerOn {
		t.Error("the default takes the power from more than the machine, or switches it on")
	}
}

// The example's manifest is taken by a real API server, and its arguments and its
// file by the plugin.
func TestManifest(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	text, err := os.Open("../../examples/deploy/redfish-plugin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if err := cluster.Apply(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	deployment, err := cluster.Client().AppsV1().Deployments(name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bmcs, err := cluster.Client().CoreV1().ConfigMaps(name).Get(t.Context(), "bmcs", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(bmcs.Data["config.toml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(deployment.Spec.Template.Spec.Containers[0].Args[1:], "--config="+file, "--check-config")
	if code := daemon.RunForTest(t, name, Default(), build, args...).Wait(); code != 0 {
		t.Errorf("the arguments and the file of the manifest: exit code %d, want 0", code)
	}
}
