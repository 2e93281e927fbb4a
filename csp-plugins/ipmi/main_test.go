package main

import (
	"fmt"
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
	sims      map[string]*simulator // by node
	uuids     map[string]string     // of its machine
	dir       string
	config    strings.Builder
	cmd       *exec.Cmd
	output    strings.Builder
}

func newWorld(t *testing.T, cluster *localcluster.Cluster) *world {
	t.Helper()
	program(t, "ipmitool", "ipmitool")
	w := &world{cluster: cluster, namespace: cluster.Namespace(t), sims: map[string]*simulator{}, uuids: map[string]string{}}
	dir, err := os.MkdirTemp("", "ipmi") // the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.dir = dir
	w.write(t, "username", "operator")
	w.write(t, "password", "secret")
	// The simulator has no cipher suite 17.
	fmt.Fprintf(&w.config, "[defaults]\ncredentials = %q\ncipherSuite = 3\n", dir)
	for _, node := range []string{w.namespace + "-a", w.namespace + "-b"} {
		id := uuid.NewString()
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: node, BootID: "boot-0", SystemUUID: id}); err != nil {
			t.Fatal(err)
		}
		w.sims[node], w.uuids[node] = simulate(t, id), id
		w.bmc(node, w.sims[node].port, "")
	}
	w.watch(t)
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
func (w *world) bmc(node string, port int, more string) {
	fmt.Fprintf(&w.config, "[[bmc]]\nnode = %q\naddress = \"127.0.0.1:%d\"\n%s\n", node, port, more)
}

// watch lets nodes show another boot id after each reboot.
func (w *world) watch(t *testing.T) {
	ctx, shown := t.Context(), map[string]int{}
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for node, sim := range w.sims {
				n := sim.reboots()
				if n == shown[node] {
					continue
				}
				patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":"boot-%d"}}}`, n)
				if _, err := w.cluster.Client().CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err == nil {
					shown[node] = n
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	t.Cleanup(over.Wait)
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

func TestConformanceOnIPMISim(t *testing.T) {
	testkit.Long(t, "redfish TestConformance, in the same frame, and TestIPMISim with one reset")
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
			Reboots: func(_ *testing.T, node string) int { return w.sims[node].reboots() },
			Claim: func(t *testing.T, node string) string {
				claimant := w.namespace + "-claimant"
				cloudtest.Register(t, cluster, claimant, "node://"+node, corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot-0", SystemUUID: w.uuids[node]}})
				return claimant
			},
			Restart:       func(t *testing.T) grpc.ClientConnInterface { w.kill(t); return w.start(t) },
			RebootTimeout: 2 * time.Minute,
		}
	})
}

// What ipmitool reports about a real BMC's answers is understood: whose machine it is, a
// power cycle, a machine that is off, a wrong password, no BMC.
func TestIPMISim(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	w := newWorld(t, cluster)
	a, b, other, cycled, silent := w.namespace+"-a", w.namespace+"-b", w.namespace+"-other", w.namespace+"-cycled", w.namespace+"-silent"
	for _, extra := range []struct{ node, more string }{
		{other, ""}, {cycled, "resetTypes = [\"cycle\"]\nskipUUIDCheck = true"}, {silent, "skipUUIDCheck = true"},
	} {
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: extra.node}); err != nil {
			t.Fatal(err)
		}
		sim := simulate(t, uuid.NewString())
		if extra.node == silent {
			_ = sim.cmd.Process.Kill()
		}
		w.bmc(extra.node, sim.port, extra.more)
		if extra.node == cycled {
			t.Cleanup(func() {
				if got := sim.chassisLog(); !slices.Equal(got, []string{"power-0", "power-1"}) {
					t.Errorf("the cycled machine: %v", got)
				}
			})
			defer testkit.Until(t, time.Minute, func() bool { return len(sim.chassisLog()) > 1 })
		}
	}
	// Its kubelet shows the system UUID of another's machine, and a new Node's does too.
	info := corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: w.uuids[a]}}
	claimant := w.namespace + "-claimant"
	cloudtest.Register(t, cluster, claimant, "", info)
	patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"systemUUID":%q}}}`, w.uuids[a])
	nodes := cloudtest.Kubelet(t, cluster, other).CoreV1().Nodes()
	if _, err := nodes.Patch(t.Context(), other, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	client := v1.NewCSPPluginServiceClient(w.start(t))
	ask := func(node, key string, want codes.Code, words string) {
		t.Helper()
		var err error
		for range 5 { // a lost packet is Aborted, and asked again
			_, err = client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: node, IdempotencyKey: key}, grpc.WaitForReady(true))
			if status.Code(err) == want && strings.Contains(fmt.Sprint(err), words) {
				return
			}
			if status.Code(err) != codes.Aborted {
				break
			}
		}
		t.Errorf("node %s: %v, want %s: %s", node, err, want, words)
	}
	ask(other, "k1", codes.FailedPrecondition, "another machine")
	ask(claimant, "k1", codes.FailedPrecondition, "has no BMC")
	ask(cycled, "k2", codes.OK, "")
	ask(silent, "k3", codes.Aborted, "chassis power status")
	w.write(t, "password", "wrong")
	ask(a, "k4", codes.Aborted, "chassis power status")
	w.write(t, "password", "secret")
	ask(a, "k4", codes.OK, "")
	if err := os.WriteFile(filepath.Join(w.sims[b].dir, "power"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask(b, "k5", codes.Aborted, "the machine is off")
	if got := w.sims[b].chassisLog(); len(got) != 0 {
		t.Errorf("the machine that is off: %v", got)
	}
	ready, err := client.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: b})
	if err != nil || ready.GetIsReady() {
		t.Errorf("the machine that is off: %v, %v; want not ready", ready, err)
	}
	if _, err := client.SendTerminateSignal(t.Context(), &v1.SendTerminateSignalRequest{NodeName: a, IdempotencyKey: "t"}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a termination: %v, want Unimplemented", err)
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
	if Default().Defaults.PowerOn {
		t.Error("the default switches machines on")
	}
}
