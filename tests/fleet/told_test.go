package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// told is a suite whose nodes are brought into every phase, and what the command
// line says of each.
type told struct {
	*braking
	config string // of fault-quarantine
}

// TestWhatIsToldInEachPhase: with every service as a process of its own, a node is
// brought into a phase, and nvsentinel says of it what testdata/told has.
func TestWhatIsToldInEachPhase(t *testing.T) {
	testkit.Long(t, "the scripts of cli/timeline, which tell the same phases from facts")
	w := startTold(t)
	phases := map[string]func(node string){
		"manual-intervention": w.needsHuman, "held": w.held, "draining": w.draining, "cancelled-in-drain": w.cancelledInDrain,
		"cancelled-before-drain": w.cancelledBeforeDrain, "repairing": w.repairing, "released": w.released,
		"recovering": w.recovering, "waits-for-symptoms": w.waitsForSymptoms, "waits-for-pods": w.waitsForPods,
		"waits-for-claim": w.waitsForClaim, "waits-for-backoff": w.waitsForBackoff, "dry-run": w.dryRun, "unknown-session": w.unknownSession,
	}
	datadriven.RunTest(t, "testdata/told", func(t *testing.T, d *datadriven.TestData) string {
		node := d.CmdArgs[0].Key
		phases[d.Cmd](node)
		w.stamped(node)
		text, err := w.fleet.Why(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if !d.HasArg("status") {
			return timeless(string(text))
		}
		return timeless(string(text) + w.status(node))
	})
}

func startTold(t *testing.T) *told {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	w := &told{config: filepath.Join(t.TempDir(), "fault-quarantine.toml")}
	w.places(t, 1)
	f, err := Start(t.Context(), Options{
		Nodes: 8, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, SettleTime: time.Second, RebootTime: time.Second,
		QuarantineFlags: []string{"--config", w.config},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	users := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: UserNamespace}}
	if _, err := f.Cluster.Client().CoreV1().Namespaces().Create(t.Context(), users, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.braking = &braking{t, f, nil}
	return w
}

// places changes the budget, which the running service takes over.
func (w *told) places(t *testing.T, nodes int) {
	t.Helper()
	text := fmt.Sprintf("[circuitBreaker]\nenabled = false\n[[budgets]]\nname = \"places\"\nnodes = %d\n", nodes)
	if err := os.WriteFile(w.config+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.config+".new", w.config); err != nil {
		t.Fatal(err)
	}
}

// status is the line of a node and that of the dry run.
func (w *told) status(node string) (lines string) {
	w.Helper()
	args := []string{"status", "--store", w.fleet.own, "--kubeconfig", w.fleet.Cluster.AdminKubeconfig()}
	out, err := exec.CommandContext(w.Context(), filepath.Join(w.fleet.options.Bin, "nvsentinel"), args...).CombinedOutput()
	if err != nil {
		w.Fatalf("nvsentinel status: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, node+" ") || strings.Contains(line, "fault-quarantine runs in dry-run mode") {
			lines += "status: " + line
		}
	}
	return lines
}

// without keeps a service down while do runs.
func (w *told) without(room string, do func()) {
	w.Helper()
	if err := w.fleet.Service(room).Swap(func() error { do(); return nil }); err != nil {
		w.Fatal(err)
	}
}

// stands waits until a node's newest fault that acts is so.
func (w *told) stands(node string, is func(record.Record) bool) {
	w.Helper()
	w.until(func(ctx context.Context) (bool, error) {
		records, err := w.fleet.Records(ctx, node)
		records = slices.DeleteFunc(records, func(r record.Record) bool { return !r.IsFault() || !r.Acts() })
		return len(records) > 0 && is(records[len(records)-1]), err
	})
}

// stamped waits until each quarantine of a node has its time, which the store is
// told after the Node.
func (w *told) stamped(node string) {
	w.Helper()
	w.until(func(ctx context.Context) (bool, error) {
		records, err := w.fleet.Records(ctx, node)
		return !slices.ContainsFunc(records, func(r record.Record) bool {
			in := r.Status.NodeQuarantined == record.Quarantined || r.Status.NodeQuarantined == record.AlreadyQuarantined
			return in && r.Status.QuarantineFinishTimestamp == nil
		}), err
	})
}

// marked waits until a Node is so.
func (w *told) marked(node string, is func(*corev1.Node) bool) {
	w.Helper()
	w.until(func(ctx context.Context) (bool, error) {
		n, err := w.fleet.Node(ctx, node)
		return err == nil && is(n), err
	})
}

func (w *told) edit(node string, change func(*corev1.Node)) {
	w.Helper()
	w.until(func(ctx context.Context) (bool, error) {
		n, err := w.fleet.Node(ctx, node)
		if err == nil {
			_, err = kube.PatchNode(ctx, w.fleet.Cluster.Client(), n, change)
		}
		return err == nil, err
	})
}

// stuck is a pod on a node that no budget lets go.
func (w *told) stuck(node, name string) {
	w.Helper()
	if _, err := w.fleet.Cluster.AddPDB(w.Context(), UserNamespace, name, 1); err != nil { // before a drainer sees the pod
		w.Fatal(err)
	}
	if _, err := w.fleet.Cluster.AddPod(w.Context(), localcluster.PodSpec{Namespace: UserNamespace, Name: name, Node: node, GPUs: 1}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.fleet.Cluster.WaitForPods(w.Context(), UserNamespace, name, 1); err != nil {
		w.Fatal(err)
	}
}

// symptom is a fault without a boot id, as a check outside of the node reports it.
func (w *told) symptom(node, code string) {
	w.Helper()
	w.report(&protos.HealthEvent{
		NodeName: node, IsFatal: true, ErrorCode: []string{code}, RecommendedAction: protos.RecommendedAction_RESTART_BM, Message: "told by hand",
		EntitiesImpacted: []*protos.Entity{{EntityType: "GPU", EntityValue: "0"}},
	})
}

func (w *told) needsHuman(node string) {
	w.report(&protos.HealthEvent{
		NodeName: node, IsFatal: true, ErrorCode: []string{"79"}, RecommendedAction: protos.RecommendedAction_CONTACT_SUPPORT, Message: "a person's",
		EntitiesImpacted: []*protos.Entity{{EntityType: "GPU", EntityValue: "0"}},
	})
	w.marked(node, func(n *corev1.Node) bool { return n.Labels[nodemark.StateLabel] == string(nodemark.RemediationFailed) })
}

func (w *told) held(node string) {
	w.stuck(node, "stuck")
	w.fault(node)
	w.stands(node, func(r record.Record) bool { return r.Reason() == record.Held })
	w.marked(node, func(n *corev1.Node) bool { return shows(n, "SysLogsXIDError") })
}

// shows says whether a condition of the Node reports a fault.
func shows(n *corev1.Node, check string) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return string(c.Type) == check && c.Status == corev1.ConditionTrue
	})
}

// draining has the held node served, whose pod stays.
func (w *told) draining(node string) {
	w.places(w.T, 100)
	w.stands(node, func(r record.Record) bool {
		e := r.Status.UserPodsEvictionStatus
		return e.Status == record.EvictionInProgress && strings.Contains(e.Message, "budget")
	})
	w.marked(node, func(n *corev1.Node) bool { return n.Labels[nodemark.StateLabel] == string(nodemark.Draining) })
}

func (w *told) cancelledInDrain(node string) {
	w.uncordon(node)
	w.stands(node, func(r record.Record) bool { return r.Status.UserPodsEvictionStatus.Status == record.EvictionCanceled })
}

// uncordon is a person's.
func (w *told) uncordon(node string) {
	w.edit(node, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	w.stands(node, func(r record.Record) bool { return r.Status.NodeQuarantined == record.QuarantineCanceled })
	w.marked(node, func(n *corev1.Node) bool {
		return n.Annotations[nodemark.SessionAnnotation] == "" && n.Labels[nodemark.StateLabel] == ""
	})
}

func (w *told) cancelledBeforeDrain(node string) {
	w.without("node-drainer", func() {
		w.fault(node)
		w.stands(node, func(r record.Record) bool { return r.Status.QuarantineFinishTimestamp != nil })
		w.uncordon(node)
	})
	w.stands(node, func(r record.Record) bool { return r.Status.UserPodsEvictionStatus.Status == record.EvictionCanceled })
}

// repairing leaves the janitor frozen, so that the object stays without a signal.
func (w *told) repairing(node string) {
	w.fleet.Service("janitor").Freeze(true)
	w.fault(node)
	w.stands(node, func(r record.Record) bool {
		rem := r.Status.Remediation
		return rem != nil && len(rem.Attempts) == 1 && rem.Attempts[0].UID != ""
	})
}

// waitsForBackoff says in the janitor's place that a maintenance object failed.
func (w *told) waitsForBackoff(node string) {
	w.repairing(node)
	objects := w.fleet.Cluster.Dynamic().Resource(rebootNodes)
	list, err := objects.List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	const failed = `{"status":{"conditions":[{"type":"NodeReady","status":"False","reason":"Failed","message":"told by hand","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	for _, o := range list.Items {
		if of, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); of != node {
			continue
		}
		if _, err := objects.Patch(w.Context(), o.GetName(), types.MergePatchType, []byte(failed), metav1.PatchOptions{}, "status"); err != nil {
			w.Fatal(err)
		}
	}
	w.waits(node, "BackingOff")
	w.marked(node, func(n *corev1.Node) bool { return n.Labels[nodemark.StateLabel] == string(nodemark.Remediating) })
}

func (w *told) released(node string) {
	w.fleet.Service("janitor").Freeze(false)
	w.until(func(ctx context.Context) (bool, error) { return w.inService(ctx, node) })
	w.until(func(ctx context.Context) (bool, error) { // of each check of the monitor
		records, err := w.fleet.Records(ctx, node)
		return len(slices.DeleteFunc(records, func(r record.Record) bool { return r.IsFault() || !r.Judged() })) == 3, err
	})
	w.marked(node, func(n *corev1.Node) bool { return !shows(n, "SysLogsXIDError") && n.Labels[nodemark.StateLabel] == "" })
}

// recovering goes without the node's monitor, which would report the recovery.
func (w *told) recovering(node string) {
	w.fleet.Service(Monitor + "@" + node).Stop(w.Context())
	w.symptom(node, "48")
	w.stands(node, func(r record.Record) bool { return record.Remediated(r.Status) == "true" })
	w.marked(node, func(n *corev1.Node) bool {
		claimed := n.Annotations[nodemark.RepairAnnotation] != ""
		return n.Labels[nodemark.StateLabel] == string(nodemark.RemediationSucceeded) && kube.NodeReady(n) && !claimed
	})
}

// waitsForSymptoms is about a node that was just repaired.
func (w *told) waitsForSymptoms(node string) {
	w.symptom(node, "95")
	w.waits(node, "AwaitingSymptomRecovery")
	w.marked(node, func(n *corev1.Node) bool { return n.Labels[nodemark.StateLabel] == string(nodemark.Remediating) })
}

func (w *told) waits(node, reason string) {
	w.Helper()
	w.stands(node, func(r record.Record) bool {
		rem := r.Status.Remediation
		return rem != nil && rem.Waiting != nil && rem.Waiting.Reason == reason
	})
}

func (w *told) waitsForPods(node string) {
	w.without("fault-remediation", func() {
		w.fault(node)
		w.stands(node, func(r record.Record) bool { return r.Status.DrainFinishTimestamp != nil })
		w.without("node-drainer", func() { w.stuck(node, "back") }) // a pod that is not Running yet no budget protects
		// The drainer's own list stands for fault-remediation's until it is two seconds old.
		w.stands(node, func(r record.Record) bool { return time.Since(*r.Status.DrainFinishTimestamp) > 3*time.Second })
	})
	w.waits(node, "AwaitingPodRemoval")
}

func (w *told) waitsForClaim(node string) {
	w.without("fault-remediation", func() {
		w.fault(node)
		w.stands(node, func(r record.Record) bool { return r.Status.DrainFinishTimestamp != nil })
		w.edit(node, func(n *corev1.Node) { n.Annotations[nodemark.RepairAnnotation] = "somebody-elses" })
	})
	w.waits(node, "AwaitingClaim")
}

// dryRun has another fault-quarantine in the place of the first.
func (w *told) dryRun(node string) {
	w.without("fault-quarantine", func() {
		dry := w.fleet.Launch("fault-quarantine-dry", "fault-quarantine", []string{
			"--kubeconfig", w.fleet.kube["fault-quarantine"], "--metrics-address", "127.0.0.1:0", "--store", w.fleet.DSN, "--single-host", "--dry-run=true",
		}, nil)
		w.fault(node)
		w.stands(node, func(r record.Record) bool { return r.Reason() == record.DryRun })
		w.marked(node, func(n *corev1.Node) bool { return shows(n, "SysLogsXIDError") })
		dry.Stop(w.Context())
	})
}

// unknownSession marks a Node for a fault that the store does not know.
func (w *told) unknownSession(node string) {
	const id = "01890000-0000-7000-8000-000000000001"
	active, err := protojson.Marshal(&protos.HealthEvent{
		Id: id, NodeName: node, Agent: Monitor, CheckName: "SysLogsXIDError", IsFatal: true, ErrorCode: []string{"79"}, Message: "from a store that is gone",
	})
	if err != nil {
		w.Fatal(err)
	}
	w.edit(node, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations[nodemark.SessionAnnotation], n.Annotations[nodemark.QuarantineHealthEventIsCordoned] = id, nodemark.True
		n.Annotations[nodemark.QuarantineHealthEvent] = "[" + string(active) + "]"
	})
	w.marked(node, func(n *corev1.Node) bool { return n.Annotations[nodemark.UnknownAnnotation] != "" })
}
