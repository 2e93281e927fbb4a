package labeler

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

const (
	manifests   = "../../distros/helm/nvsentinel/manifests/"
	namespace   = "nvsentinel"
	waitTimeout = 2 * time.Minute
	grace       = 10 * time.Minute
)

// world is an API server with the suite's rights and policies, and the labeler under
// its own account.
type world struct {
	t       *testing.T
	cluster *localcluster.Cluster
	clock   *testclock.FakeClock
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, cluster: localcluster.ForTest(t, localcluster.Options{AuditNamespace: namespace}), clock: testclock.NewFakeClock(time.Now())}
	for _, name := range []string{"rbac.yaml", "nodes.yaml", "names.yaml"} {
		manifest, err := os.Open(manifests + name)
		if err != nil {
			t.Fatal(err)
		}
		defer manifest.Close()
		if err := w.cluster.Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// run starts the labeler, which leads, on the test's clock.
func (w *world) run(args ...string) *daemon.Running {
	w.t.Helper()
	kubeconfig, err := w.cluster.ServiceAccountKubeconfig(w.t.Context(), namespace, name, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	onClock := func(ctx context.Context, d *daemon.Daemon, cfg Config) error {
		d.Clock = w.clock
		return build(ctx, d, cfg)
	}
	return daemon.RunForTest(w.t, name, defaultConfig, onClock, append([]string{
		"--kubeconfig", kubeconfig, "--leader-elect", "--leader-elect-namespace", namespace,
	}, args...)...)
}

func (w *world) node(name string, gpus int, labels map[string]string) {
	w.t.Helper()
	all := map[string]string{"node.kubernetes.io/instance-type": "p5", "nvidia.com/gpu.product": "H100"}
	maps.Copy(all, labels)
	if _, err := w.cluster.AddNode(w.t.Context(), localcluster.NodeSpec{Name: name, GPUs: gpus, Labels: all}); err != nil {
		w.t.Fatal(err)
	}
}

// pod is an operator's on a node, and is Ready.
func (w *world) pod(name, node, image string, labels map[string]string) {
	w.t.Helper()
	w.podIn("gpu-operator", name, node, image, labels)
}

// podIn adds a pod to a namespace, with a DaemonSet as its owner.
func (w *world) podIn(namespace, name, node, image string, labels map[string]string) {
	w.t.Helper()
	pods := w.cluster.Client().CoreV1().Pods(namespace)
	spec := localcluster.PodSpec{Namespace: namespace, Name: name, Node: node, Labels: labels}
	pod, err := w.cluster.AddPod(w.t.Context(), spec)
	if err != nil {
		w.t.Fatal(err)
	}
	pod.Spec.Containers[0].Image = image
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "daemons", UID: "daemons", Controller: new(true)}}
	if pod, err = pods.Update(w.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if _, err := pods.UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// status changes that of a node.
func (w *world) status(name string, change func(*corev1.NodeStatus)) {
	w.t.Helper()
	nodes := w.cluster.Client().CoreV1().Nodes()
	testkit.Until(w.t, waitTimeout, func() bool { // the labeler writes meanwhile
		node := w.get(name)
		change(&node.Status)
		_, err := nodes.UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{})
		return err == nil
	})
}

func (w *world) gpus(name string, count int64) {
	w.t.Helper()
	w.status(name, func(s *corev1.NodeStatus) {
		s.Allocatable[localcluster.GPUResource] = *resource.NewQuantity(count, resource.DecimalSI)
	})
}

func (w *world) get(name string) *corev1.Node {
	w.t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

// managedLabels are the labels of a node that show what is on it, but for its groups.
func managedLabels(node *corev1.Node) string {
	var out []string
	for key, value := range node.Labels {
		short, found := strings.CutPrefix(key, "nvsentinel.dgxc.nvidia.com/")
		if found && !strings.HasSuffix(short, ".group") && short != "managed" {
			out = append(out, short+"="+value)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// expect waits until a node has these managed labels and no other.
func (w *world) expect(name, want string) {
	w.t.Helper()
	got := ""
	defer func() {
		if got != want {
			w.t.Errorf("node %s has %s, want %s", name, got, want)
		}
	}()
	testkit.Until(w.t, waitTimeout, func() bool { got = managedLabels(w.get(name)); return got == want })
}

// later waits for it too, while time goes by.
func (w *world) later(name, want string) {
	w.t.Helper()
	testkit.Until(w.t, waitTimeout, func() bool {
		if managedLabels(w.get(name)) == want {
			return true
		}
		w.clock.Step(grace / 10)
		return false
	})
}

// patches are how often the labeler has written each node, from the audit.
func (w *world) patches() map[string]int {
	w.t.Helper()
	requests, err := w.cluster.Requests()
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]int{}
	for _, q := range requests {
		switch {
		case q.Account != name, q.LostRace():
		case q.Code == 403 || q.Code == 422:
			w.t.Errorf("refused: %s", q)
		case q.Resource == "nodes" && q.Verb == "patch" && q.Code == 200:
			out[q.Name]++
		case q.Resource == "leases", q.Verb == "list", q.Verb == "watch":
		default:
			w.t.Errorf("a request that nobody needs: %s", q)
		}
	}
	return out
}

// TestNodeLifecycle: what is on nodes stands on their labels, a loss only once it
// has stood for a while; others' nodes and others' labels are left alone, and
// nothing is asked or written when nothing changes.
func TestNodeLifecycle(t *testing.T) {
	w := newWorld(t)
	w.node("labeled-a", 8, map[string]string{"example.com/mine": "stays"})
	w.node("labeled-out", 8, map[string]string{nodemark.ManagedLabel: nodemark.ManagedOptOut})
	w.node("labeled-cpu", -1, nil)
	dcgm := func(node string) {
		w.pod("dcgm-"+node, node, "nvcr.io/nvidia/cloud-native/dcgm:4.5.2-1-ubuntu22.04", map[string]string{"app": "nvidia-dcgm"})
	}
	dcgm("labeled-a")
	dcgm("labeled-out")
	w.pod("driver-a", "labeled-a", "driver:570", map[string]string{"app.kubernetes.io/component": "nvidia-driver"})
	running := w.run()
	w.expect("labeled-a", "dcgm.version=4.x driver.installed=true gpu.count.current=8 gpu.count.expected=8 kata.enabled=false")
	w.expect("labeled-cpu", "kata.enabled=false")

	// One comes with fewer GPUs than its peer: perhaps it starts.
	w.node("labeled-b", 7, nil)
	dcgm("labeled-b")
	w.pod("driver-b", "labeled-b", "driver:570", map[string]string{"k8s-app": "nvidia-driver-installer"})
	w.expect("labeled-b", "dcgm.version=4.x driver.installed=true kata.enabled=false")
	w.later("labeled-b", "dcgm.version=4.x driver.installed=true gpu.count.current=7 gpu.count.expected=8 kata.enabled=false")

	// A GPU is lost, and a DCGM pod; the labels change after the grace.
	w.gpus("labeled-a", 6)
	if err := w.cluster.Client().CoreV1().Pods("gpu-operator").Delete(t.Context(), "dcgm-labeled-a", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	w.later("labeled-a", "driver.installed=true gpu.count.current=6 gpu.count.expected=8 kata.enabled=false")

	// Heartbeats are no reason to look; what follows comes alone.
	for _, node := range []string{"labeled-a", "labeled-b", "labeled-cpu"} {
		w.status(node, func(s *corev1.NodeStatus) {
			for i := range s.Conditions {
				s.Conditions[i].LastHeartbeatTime = metav1.Now()
			}
		})
	}
	w.gpus("labeled-a", 8)
	w.expect("labeled-a", "driver.installed=true gpu.count.current=8 gpu.count.expected=8 kata.enabled=false")

	if out := w.get("labeled-out"); managedLabels(out) != "" {
		t.Errorf("a node that is opted out has %s", managedLabels(out))
	}
	if mine := w.get("labeled-a").Labels["example.com/mine"]; mine != "stays" {
		t.Errorf("a label of somebody else is %q", mine)
	}
	if code := running.Stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	written := w.patches()
	for node, most := range map[string]int{"labeled-a": 4, "labeled-b": 4, "labeled-cpu": 1, "labeled-out": 0} {
		if written[node] > most {
			t.Errorf("node %s was written %d times, want %d at most", node, written[node], most)
		}
	}
}

// bound takes the labeler's right to read all pods, and gives it that in some namespaces.
func (w *world) bound(namespaces ...string) {
	w.t.Helper()
	const role = "nvsentinel-labeler-pods"
	rights := w.cluster.Client().RbacV1()
	if err := rights.ClusterRoleBindings().Delete(w.t.Context(), role, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	for _, allowed := range namespaces {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: allowed}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
		}
		if _, err := rights.RoleBindings(allowed).Create(w.t.Context(), binding, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestATenantsPodLabelsNoNode: anybody may give a pod of his any label, any owner and any
// node. Only pods of the operators' namespaces show what is on a node.
func TestATenantsPodLabelsNoNode(t *testing.T) {
	w := newWorld(t)
	w.node("labeled-victim", 8, nil)
	w.node("labeled-other", 8, nil)
	tenants := map[string]map[string]string{
		"dcgm": {"app": "nvidia-dcgm"}, "driver": {"app": "nvidia-driver-daemonset"},
		"component": {"app.kubernetes.io/component": "nvidia-driver"}, "gke": {"k8s-app": "nvidia-driver-installer"},
	}
	for name, labels := range tenants {
		w.podIn("team-a", name, "labeled-victim", "registry.example.com/dcgm:3.0", labels)
	}
	w.pod("dcgm-other", "labeled-other", "nvcr.io/nvidia/cloud-native/dcgm:4.5.2-1-ubuntu22.04", map[string]string{"app": "nvidia-dcgm"})
	w.podIn("kube-system", "driver-other", "labeled-other", "gke:1", tenants["gke"])
	w.bound("gpu-operator", "kube-system")
	w.run("--pod-namespaces=gpu-operator,kube-system")
	w.expect("labeled-other", "dcgm.version=4.x driver.installed=true gpu.count.current=8 gpu.count.expected=8 kata.enabled=false")
	w.expect("labeled-victim", "gpu.count.current=8 gpu.count.expected=8 kata.enabled=false")
	// Nor does one change what an operator's pod shows.
	w.podIn("team-a", "dcgm-newer", "labeled-other", "registry.example.com/dcgm:3.0", tenants["dcgm"])
	w.pod("driver-victim", "labeled-victim", "driver:570", tenants["driver"]) // and that is seen after it
	w.expect("labeled-victim", "driver.installed=true gpu.count.current=8 gpu.count.expected=8 kata.enabled=false")
	w.expect("labeled-other", "dcgm.version=4.x driver.installed=true gpu.count.current=8 gpu.count.expected=8 kata.enabled=false")
	for node := range map[string]bool{"labeled-victim": true, "labeled-other": true} {
		if err := w.cluster.DeleteNode(t.Context(), node); err != nil {
			t.Error(err)
		}
	}
}

// TestDevicesOfResourceSlices are counted where an expression asks for them, and when
// one comes later.
func TestDevicesOfResourceSlices(t *testing.T) {
	w := newWorld(t)
	classes := filepath.Join(t.TempDir(), "classes.toml")
	text := "[[classes]]\nname = 'dra'\ngroupingLabels = ['pool']\ncurrentExpression = 'size(resourceSlices) == 0 ? dyn(null) : dyn(sum(resourceSlices.map(s, size(s.spec.devices))))'\n"
	if err := os.WriteFile(classes, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.node("labeled-dra", -1, nil)
	w.run("--expected-device-counts-config-file", classes)
	w.expect("labeled-dra", "kata.enabled=false")
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "labeled-dra-1"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: new("labeled-dra"), Pool: resourcev1.ResourcePool{Name: "labeled-dra", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}},
		},
	}
	if _, err := w.cluster.Client().ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expect("labeled-dra", "dra.count.current=2 dra.count.expected=2 kata.enabled=false")
}

// TestInvalidConfigurationIsNamed: each mistake is reported with its key, before anything
// begins.
func TestInvalidConfigurationIsNamed(t *testing.T) {
	classes := func(text string) string {
		path := filepath.Join(t.TempDir(), "classes.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := defaultConfig.Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	for want, change := range map[string]func(*Config){
		"gracePeriod (--grace-period) is 1s: must be at least 1m": func(c *Config) { c.Grace = time.Second },
		"dcgmAppLabel (--dcgm-app-label) is empty":                func(c *Config) { c.DCGMApp = "" },
		`driverAppLabel (--driver-app-label) "a/b"`:               func(c *Config) { c.DriverApp = "a/b" },
		`kataLabel (--kata-label) "a b"`:                          func(c *Config) { c.KataLabel = "a b" },
		`(--assume-dcgm-version) "4" is not a version`:            func(c *Config) { c.AssumeDCGM = "4" },
		"podNamespaces (--pod-namespaces) has 0":                  func(c *Config) { c.PodNamespaces = nil },
		`podNamespaces (--pod-namespaces) has ""`:                 func(c *Config) { c.PodNamespaces = []string{""} },
		"each of them once":                                       func(c *Config) { c.PodNamespaces = []string{"a", "a"} },
		"set 1 to 16": func(c *Config) {
			c.PodNamespaces = strings.Split("a b c d e f g h i j k l m n o p q", " ")
		},
		"workers (--workers) is 0":       func(c *Config) { c.Workers = 0 },
		"reading the classes of devices": func(c *Config) { c.ClassesFile = "/does/not/exist" },
		"currentExpression is missing":   func(c *Config) { c.ClassesFile = classes("[[classes]]\nname = 'gpu'\ngroupingLabels = ['a']\n") },
	} {
		c := defaultConfig
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
