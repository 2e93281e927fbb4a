package kubernetesobjectmonitor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/report/reporttest"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// world is an API server, a connector's socket, and the monitor's namespace.
type world struct {
	t         *testing.T
	cluster   *localcluster.Cluster
	connector *reporttest.Connector
	namespace string
	policies  string
	clock     clock.WithTicker
}

func newWorld(t *testing.T, policies string) *world {
	w := &world{t: t, cluster: localcluster.ForTest(t, localcluster.Options{}), connector: reporttest.Start(t), clock: clock.RealClock{}}
	w.namespace = w.cluster.Namespace(t)
	w.policies = filepath.Join(t.TempDir(), "policies.toml")
	w.write(policies)
	return w
}

func (w *world) write(policies string) {
	w.t.Helper()
	if err := os.WriteFile(w.policies+".new", []byte(policies), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.policies+".new", w.policies); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) run(more ...string) *daemon.Running {
	build := func(ctx context.Context, d *daemon.Daemon, cfg Config) error {
		d.Clock = w.clock
		return build(ctx, d, cfg)
	}
	return daemon.RunForTest(w.t, "kubernetes-object-monitor", defaultConfig, build, append([]string{
		"--kubeconfig", w.cluster.AdminKubeconfig(), "--platform-connector-socket", w.connector.Target(),
		"--policy-config-path", w.policies, "--leader-elect-namespace", w.namespace}, more...)...)
}

// stories lists what the connector has, one line an event.
func stories(events []*protos.HealthEvent) []string {
	var out []string
	for _, e := range events {
		what := "fault"
		if e.IsHealthy {
			what = "recovery"
		}
		out = append(out, fmt.Sprintf("%s %s %s %s %s %s", what, e.CheckName, e.NodeName, e.EntitiesImpacted[0].EntityType,
			e.EntitiesImpacted[0].EntityValue[strings.LastIndex(e.EntitiesImpacted[0].EntityValue, "/")+1:], strings.Join(e.ErrorCode, ",")))
	}
	return out
}

// expect waits for as many events and compares all of them, in order.
func (w *world) expect(want ...string) {
	w.t.Helper()
	for i := range want {
		want[i] = strings.TrimRight(want[i], " ") + " "
	}
	got := stories(w.connector.Await(w.t, fmt.Sprintf("%d events", len(want)), func(all []*protos.HealthEvent) bool { return len(all) >= len(want) }))
	if !slices.Equal(got, want) {
		w.t.Fatalf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (w *world) node(name string, labels map[string]string) *corev1.Node {
	w.t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.cluster.DeleteNode(context.Background(), name) })
	return node
}

func (w *world) ready(name string, status corev1.ConditionStatus, since time.Time) {
	w.t.Helper()
	nodes := w.cluster.Client().CoreV1().Nodes()
	node, err := nodes.Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(since)}}
	if _, err := nodes.UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) label(name, value string) {
	w.t.Helper()
	nodes := w.cluster.Client().CoreV1().Nodes()
	node, err := nodes.Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels["test/broken"] = value
	if _, err := nodes.Update(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func example(t *testing.T) string {
	text, err := os.ReadFile("policy/testdata/policies.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// waitTimeout bounds every wait; each takes seconds.
const waitTimeout = 2 * time.Minute

// poll asks until cond holds; what is wrong may be asked of it when it never does.
func poll(t *testing.T, cond func() bool, wrong func() string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(waitTimeout); !cond(); {
		select {
		case <-end:
			t.Fatalf("waited %s: %s", waitTimeout, wrong())
		case <-tick.C:
		}
	}
}

// until steps the monitor's clock until the connector has that many events: the
// monitor's timers stand on that clock. The steps are to be so small that
// nothing ends by age before a slow machine has looked at it.
func (w *world) until(fake *testclock.FakeClock, step time.Duration, events int) {
	w.t.Helper()
	poll(w.t, func() bool {
		if len(w.connector.Distinct(w.t)) >= events {
			return true
		}
		if fake.HasWaiters() {
			fake.Step(step)
		}
		return false
	}, func() string { return fmt.Sprintf("not %d events: %v", events, stories(w.connector.Distinct(w.t))) })
}

func TestANodeNotReadyForTwoHours(t *testing.T) {
	w := newWorld(t, example(t))
	start := time.Now().Truncate(time.Second)
	fake := testclock.NewFakeClock(start)
	w.clock = fake
	w.node("kom-ready-1", map[string]string{"nvidia.com/gpu.present": "true"})
	w.ready("kom-ready-1", corev1.ConditionFalse, start)
	w.run()
	w.until(fake, time.Minute, 1)
	if passed := fake.Since(start); passed <= 2*time.Hour {
		t.Errorf("reported after %s", passed)
	}
	w.expect("fault GPUNodeNotReady kom-ready-1 v1/Node kom-ready-1")
	w.ready("kom-ready-1", corev1.ConditionTrue, fake.Now())
	w.until(fake, time.Second, 2)
	w.expect("fault GPUNodeNotReady kom-ready-1 v1/Node kom-ready-1", "recovery GPUNodeNotReady kom-ready-1 v1/Node kom-ready-1")
}

// serviceAccount makes the account without which no pod is admitted.
func (w *world) serviceAccount() {
	w.t.Helper()
	_, err := w.cluster.Client().CoreV1().ServiceAccounts(w.namespace).Create(w.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// broken is a policy that matches Nodes of a prefix with the label test/broken.
func broken(name, prefix string) string {
	return fmt.Sprintf(`[[policies]]
name = %q
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Node"
[policies.predicate]
expression = "resource.metadata.name.startsWith('%s') && has(resource.metadata.labels['test/broken']) && resource.metadata.labels['test/broken'] == 'true'"
[policies.healthEvent]
componentClass = "Node"
isFatal = true
message = "broken by label"
recommendedAction = "CONTACT_SUPPORT"
`, name, prefix)
}

func TestARestartNeitherFloodsNorForgets(t *testing.T) {
	w := newWorld(t, broken("Label", "kom-restart"))
	for _, name := range []string{"stays", "heals", "goes"} {
		w.node("kom-restart-"+name, map[string]string{"test/broken": "true"})
	}
	first := w.run()
	w.connector.Await(t, "three faults", func(all []*protos.HealthEvent) bool { return len(all) == 3 })
	first.Stop()
	w.label("kom-restart-heals", "false")
	if err := w.cluster.DeleteNode(t.Context(), "kom-restart-goes"); err != nil {
		t.Fatal(err)
	}
	second := w.run()
	got := stories(w.connector.Await(t, "two recoveries", func(all []*protos.HealthEvent) bool { return len(all) >= 5 }))[3:]
	slices.Sort(got)
	want := []string{"recovery Label kom-restart-goes v1/Node kom-restart-goes ", "recovery Label kom-restart-heals v1/Node kom-restart-heals "}
	if !slices.Equal(got, want) {
		t.Fatalf("after the restart: %q", got)
	}
	// A further transition comes alone, so that nothing was repeated before it.
	w.label("kom-restart-heals", "true")
	all := w.connector.Await(t, "one more fault", func(all []*protos.HealthEvent) bool { return len(all) >= 6 })
	if last := stories(all)[5]; len(all) != 6 || last != "fault Label kom-restart-heals v1/Node kom-restart-heals " {
		t.Fatalf("got %q", stories(all))
	}
	for i, e := range all {
		if e.Metadata["seq"] != fmt.Sprint(i+1) || e.Metadata["seqEpoch"] != all[0].Metadata["seqEpoch"] {
			t.Errorf("event %d has seq %s of epoch %s", i, e.Metadata["seq"], e.Metadata["seqEpoch"])
		}
	}
	second.Stop()
	// The policy goes while nobody runs: its faults recover.
	w.write(broken("Other", "no-such-node"))
	w.run()
	got = stories(w.connector.Await(t, "two recoveries", func(all []*protos.HealthEvent) bool { return len(all) >= 8 }))[6:]
	slices.Sort(got)
	want = []string{"recovery Label kom-restart-heals v1/Node kom-restart-heals ", "recovery Label kom-restart-stays v1/Node kom-restart-stays "}
	if !slices.Equal(got, want) {
		t.Fatalf("after the policy went: %q", got)
	}
}

func TestChangedPoliciesAreTakenOver(t *testing.T) {
	w := newWorld(t, broken("Before", "kom-reload"))
	w.node("kom-reload-1", map[string]string{"test/broken": "true"})
	r := w.run()
	w.expect("fault Before kom-reload-1 v1/Node kom-reload-1")
	w.write("[[policies]]\nname = 3\n")
	reported := func() bool {
		list, err := w.cluster.Client().CoreV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && list.Items[0].Reason == "PoliciesRefused"
	}
	poll(t, reported, func() string { return "no Event about the refused policies" })
	if _, metrics := get(t, r, "/metrics"); !strings.Contains(metrics, "nvsentinel_object_monitor_policies_reload_failed 1\n") {
		t.Error("no metric says that the policies were refused")
	}
	w.write(broken("After", "kom-reload"))
	w.expect("fault Before kom-reload-1 v1/Node kom-reload-1", "recovery Before kom-reload-1 v1/Node kom-reload-1", "fault After kom-reload-1 v1/Node kom-reload-1")
}

func TestAStandbyTakesOverWithTheChartsRights(t *testing.T) {
	w := newWorld(t, broken("Handover", "kom-handover")+strings.Replace(strings.Replace(broken("Pods", "x"), `"Node"`, `"Pod"`, 1),
		"[policies.healthEvent]", "[policies.nodeAssociation]\nexpression = \"lookup('v1', 'Node', '', resource.spec.nodeName).metadata.name\"\n[policies.healthEvent]", 1))
	manifest, err := os.Open("../../distros/helm/nvsentinel/manifests/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer manifest.Close()
	if err := w.cluster.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := w.cluster.ServiceAccountKubeconfig(t.Context(), "nvsentinel", "kubernetes-object-monitor", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	replica := func() *daemon.Running {
		return daemon.RunForTest(t, "kubernetes-object-monitor", defaultConfig, build,
			"--kubeconfig", kubeconfig, "--platform-connector-socket", w.connector.Target(), "--policy-config-path", w.policies,
			"--leader-elect", "--leader-elect-namespace", "nvsentinel",
			// A replica that leaves lets its lease go; one that is slow is to keep it.
			"--leader-elect-lease-duration", "60s", "--leader-elect-renew-deadline", "50s")
	}
	w.node("kom-handover-1", map[string]string{"test/broken": "true"})
	first := replica()
	w.expect("fault Handover kom-handover-1 v1/Node kom-handover-1")
	replica()
	first.Stop()
	w.label("kom-handover-1", "false")
	all := w.connector.Await(t, "a recovery", func(all []*protos.HealthEvent) bool { return len(all) >= 2 })
	w.expect("fault Handover kom-handover-1 v1/Node kom-handover-1", "recovery Handover kom-handover-1 v1/Node kom-handover-1")
	if all[1].Metadata["seq"] != "2" || all[1].Metadata["seqEpoch"] != all[0].Metadata["seqEpoch"] {
		t.Errorf("the counter did not go on: %v, %v", all[0].Metadata, all[1].Metadata)
	}
}

func TestAnUnacknowledgedEventIsSentAgainUnderItsID(t *testing.T) {
	w := newWorld(t, broken("Again", "kom-again"))
	w.node("kom-again-1", map[string]string{"test/broken": "true"})
	asked := make(chan string, 100)
	w.connector.Refuse(func(in *protos.HealthEvents) error {
		select {
		case asked <- in.Events[0].Id:
		default:
		}
		return status.Error(codes.Unavailable, "not now")
	})
	first := w.run()
	id := <-asked
	first.Stop()
	w.connector.Refuse(nil)
	// The object is gone before the next leader acts: the fault that was decided is
	// sent, and then its recovery.
	if err := w.cluster.DeleteNode(t.Context(), "kom-again-1"); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.expect("fault Again kom-again-1 v1/Node kom-again-1", "recovery Again kom-again-1 v1/Node kom-again-1")
	if got := w.connector.Distinct(t)[0].Id; got != id {
		t.Errorf("the event came as %s and then as %s", id, got)
	}
}

func TestAKindThatAppearsLater(t *testing.T) {
	text := strings.NewReplacer(`group = ""`, `group = "kom.example.com"`, `"v1"`, `"v1alpha1"`, `"Node"`+"\n[policies.predicate]", `"Disk"`+"\n[policies.predicate]").Replace(broken("Disk", "kom-disk"))
	text = strings.Replace(text, "[policies.healthEvent]", "[policies.nodeAssociation]\nexpression = \"resource.spec.nodeName\"\n[policies.healthEvent]", 1)
	w := newWorld(t, text+broken("Beside", "kom-later"))
	fake := testclock.NewFakeClock(time.Now())
	w.clock = fake
	w.node("kom-later-1", map[string]string{"test/broken": "true"})
	w.run()
	w.until(fake, time.Second, 1)
	w.expect("fault Beside kom-later-1 v1/Node kom-later-1")
	if err := w.cluster.Apply(t.Context(), strings.NewReader(diskCRD)); err != nil {
		t.Fatal(err)
	}
	w.disk("n1")
	w.until(fake, time.Second, 2)
	w.disk("n2")
	w.until(fake, 0, 4)
	w.expect("fault Beside kom-later-1 v1/Node kom-later-1", "fault Disk n1 kom.example.com/v1alpha1/Disk kom-disk-1",
		"recovery Disk n1 kom.example.com/v1alpha1/Disk kom-disk-1", "fault Disk n2 kom.example.com/v1alpha1/Disk kom-disk-1")
}

const diskCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: disks.kom.example.com}
spec:
  group: kom.example.com
  scope: Cluster
  names: {plural: disks, singular: disk, kind: Disk, listKind: DiskList}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// disk writes a broken disk on a node, as soon as its kind is served.
func (w *world) disk(node string) {
	w.t.Helper()
	text := "apiVersion: kom.example.com/v1alpha1\nkind: Disk\nmetadata: {name: kom-disk-1, labels: {test/broken: 'true'}}\nspec: {nodeName: " + node + "}\n"
	var err error
	poll(w.t, func() bool {
		err = w.cluster.Apply(w.t.Context(), strings.NewReader(text))
		return err == nil
	}, func() string { return err.Error() })
}
