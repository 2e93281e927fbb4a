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

// phaseSuite is a suite that brings nodes into every phase, and checks what the command line
// reports about each.
type phaseSuite struct {
	*pauseSuite
	config string // of fault-quarantine
}

// TestReportsOfEachPhase: with every service as a process of its own, a node is brought into
// each phase, and nvsentinel reports about it what testdata/phases contains.
func TestReportsOfEachPhase(t *testing.T) {
	testkit.Long(t, "the scripts of cli/timeline, which tell the same phases from facts")
	w := startPhaseSuite(t)
	phases := map[string]func(node string){
		"manual-intervention": w.needsHuman, "held": w.expectHeld, "draining": w.draining, "cancelled-in-drain": w.cancelledInDrain,
		"cancelled-before-drain": w.cancelledBeforeDrain, "repairing": w.repairing, "released": w.released,
		"recovering": w.recovering, "waits-for-symptoms": w.waitsForSymptoms, "waits-for-pods": w.waitsForPods,
		"waits-for-claim": w.waitsForClaim, "waits-for-backoff": w.waitsForBackoff, "dry-run": w.dryRun, "unknown-session": w.unknownSession,
	}
	datadriven.RunTest(t, "testdata/phases", func(t *testing.T, d *datadriven.TestData) string {
		node := d.CmdArgs[0].Key
		phases[d.Cmd](node)
		w.waitQuarantineTimes(node)
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

func startPhaseSuite(t *testing.T) *phaseSuite {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	w := &phaseSuite{config: filepath.Join(t.TempDir(), "fault-quarantine.toml")}
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
	w.pauseSuite = &pauseSuite{t, f, nil}
	return w
}

// places changes the budget, which the running service takes over.
func (p *phaseSuite) places(t *testing.T, nodes int) {
	t.Helper()
	text := fmt.Sprintf("[circuitBreaker]\nenabled = false\n[[budgets]]\nname = \"places\"\nnodes = %d\n", nodes)
	if err := os.WriteFile(p.config+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.config+".new", p.config); err != nil {
		t.Fatal(err)
	}
}

// status is the line of a node and that of the dry run.
func (p *phaseSuite) status(node string) (lines string) {
	p.Helper()
	args := []string{"status", "--store", p.fleet.own, "--kubeconfig", p.fleet.Cluster.AdminKubeconfig()}
	out, err := exec.CommandContext(p.Context(), filepath.Join(p.fleet.options.Bin, "nvsentinel"), args...).CombinedOutput()
	if err != nil {
		p.Fatalf("nvsentinel status: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, node+" ") || strings.Contains(line, "fault-quarantine runs in dry-run mode") {
			lines += "status: " + line
		}
	}
	return lines
}

// without keeps a service down while do runs.
func (p *phaseSuite) without(service string, do func()) {
	p.Helper()
	if err := p.fleet.Service(service).Swap(func() error { do(); return nil }); err != nil {
		p.Fatal(err)
	}
}

// stands waits until a node's newest fault that acts is so.
func (p *phaseSuite) stands(node string, is func(record.Record) bool) {
	p.Helper()
	p.until(func(ctx context.Context) (bool, error) {
		records, err := p.fleet.Records(ctx, node)
		records = slices.DeleteFunc(records, func(r record.Record) bool { return !r.IsFault() || !r.Acts() })
		return len(records) > 0 && is(records[len(records)-1]), err
	})
}

// waitQuarantineTimes waits until each quarantine of a node has its time, which is stored after
// the Node is updated.
func (p *phaseSuite) waitQuarantineTimes(node string) {
	p.Helper()
	p.until(func(ctx context.Context) (bool, error) {
		records, err := p.fleet.Records(ctx, node)
		return !slices.ContainsFunc(records, func(r record.Record) bool {
			in := r.Status.NodeQuarantined == record.Quarantined || r.Status.NodeQuarantined == record.AlreadyQuarantined
			return in && r.Status.QuarantineFinishTimestamp == nil
		}), err
	})
}

// marked waits until a Node is so.
func (p *phaseSuite) marked(node string, is func(*corev1.Node) bool) {
	p.Helper()
	p.until(func(ctx context.Context) (bool, error) {
		n, err := p.fleet.Node(ctx, node)
		return err == nil && is(n), err
	})
}

func (p *phaseSuite) edit(node string, change func(*corev1.Node)) {
	p.Helper()
	p.until(func(ctx context.Context) (bool, error) {
		n, err := p.fleet.Node(ctx, node)
		if err == nil {
			_, err = kube.PatchNode(ctx, p.fleet.Cluster.Client(), n, change)
		}
		return err == nil, err
	})
}

// stuck adds a pod that its budget keeps on a node.
func (p *phaseSuite) stuck(node, name string) {
	p.Helper()
	if _, err := p.fleet.Cluster.AddPDB(p.Context(), UserNamespace, name, 1); err != nil { // before a drainer sees the pod
		p.Fatal(err)
	}
	if _, err := p.fleet.Cluster.AddPod(p.Context(), localcluster.PodSpec{Namespace: UserNamespace, Name: name, Node: node, GPUs: 1}); err != nil {
		p.Fatal(err)
	}
	if _, err := p.fleet.Cluster.WaitForPods(p.Context(), UserNamespace, name, 1); err != nil {
		p.Fatal(err)
	}
}

// symptom is a fault without a boot id, as a check outside of the node reports it.
func (p *phaseSuite) symptom(node, code string) {
	p.Helper()
	p.report(&protos.HealthEvent{
		NodeName: node, IsFatal: true, ErrorCode: []string{code}, RecommendedAction: protos.RecommendedAction_RESTART_BM, Message: "told by hand",
		EntitiesImpacted: []*protos.Entity{{EntityType: "GPU", EntityValue: "0"}},
	})
}

func (p *phaseSuite) needsHuman(node string) {
	p.report(&protos.HealthEvent{
		NodeName: node, IsFatal: true, ErrorCode: []string{"79"}, RecommendedAction: protos.RecommendedAction_CONTACT_SUPPORT, Message: "a person's",
		EntitiesImpacted: []*protos.Entity{{EntityType: "GPU", EntityValue: "0"}},
	})
	p.marked(node, func(n *corev1.Node) bool { return n.Labels[nodemark.StateLabel] == string(nodemark.RemediationFailed) })
}

func (p *phaseSuite) expectHeld(node string) {
	p.stuck(node, "stuck")
	p.fault(node)
	p.stands(node, func(r record.Record) bool { return r.Reason() == record.Held })
	p.marked(node, func(n *corev1.Node) bool { return shows(n, "SysLogsXIDError") })
}

// shows reports whether a condition of the Node reports a fault.
func shows(n *corev1.Node, check string) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return string(c.Type) == check && c.Status == corev1.ConditionTrue
	})
}

// draining has the held node served, whose pod stays.
func (p *phaseSuite) draining(node string) {
	p.places(p.T, 100)
	p.stands(node, func(r record.Record) bool {
		e := r.Status.UserPodsEvictionStatus
		return e.Status == record.EvictionInProgress && strings.Contains(e.Message, "budget")
	})
	p.marked(node, func(n *corev1.Node) bool { return n.Labels[nodemark.StateLabel] == string(nodemark.Draining) })
}

func (p *phaseSuite) cancelledInDrain(node string) {
	p.uncordon(node)
	p.stands(node, func(r record.Record) bool { return r.Status.UserPodsEvictionStatus.Status == record.EvictionCanceled })
}

// uncordon is a person's.
func (p *phaseSuite) uncordon(node string) {
	p.edit(node, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	p.stands(node, func(r record.Record) bool { return r.Status.NodeQuarantined == record.QuarantineCanceled })
	p.marked(node, func(n *corev1.Node) bool {
		return n.Annotations[nodemark.SessionAnnotation] == "" && n.Labels[nodemark.StateLabel] == ""
	})
}

func (p *phaseSuite) cancelledBeforeDrain(node string) {
	p.without("node-drainer", func() {
		p.fault(node)
		p.stands(node, func(r record.Record) bool { return r.Status.QuarantineFinishTimestamp != nil })
		p.uncordon(node)
	})
	p.stands(node, func(r record.Record) bool { return r.Status.UserPodsEvictionStatus.Status == record.EvictionCanceled })
}

// repairing leaves the janitor frozen, so that the object stays without a signal.
func (p *phaseSuite) repairing(node string) {
	p.fleet.Service("janitor").Freeze(true)
	p.fault(node)
	p.stands(node, func(r record.Record) bool {
		rem := r.Status.Remediation
		return rem != nil && len(rem.Attempts) == 1 && rem.Attempts[0].UID != ""
	})
}

// waitsForBackoff reports in the janitor's place that a maintenance object failed.
func (p *phaseSuite) waitsForBackoff(node string) {
	p.repairing(node)
	objects := p.fleet.Cluster.Dynamic().Resource(rebootNodes)
	list, err := objects.List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	const failed = `{"status":{"conditions":[{"type":"NodeReady","status":"False","reason":"Failed","message":"told by hand","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	for _, o := range list.Items {
		if of, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); of != node {
			continue
		}
		if _, err := objects.Patch(p.Context(), o.GetName(), types.MergePatchType, []byte(failed), metav1.PatchOptions{}, "status"); err != nil {
			p.Fatal(err)
		}
	}
	p.waits(node, "BackingOff")
	p.marked(node, func(n *corev1.Node) bool { return n.Labels[nodemark.StateLabel] == string(nodemark.Remediating) })
}

func (p *phaseSuite) released(node string) {
	p.fleet.Service("janitor").Freeze(false)
	p.until(func(ctx context.Context) (bool, error) { return p.inService(ctx, node) })
	p.until(func(ctx context.Context) (bool, error) { // of each check of the monitor
		records, err := p.fleet.Records(ctx, node)
		return len(slices.DeleteFunc(records, func(r record.Record) bool { return r.IsFault() || !r.Evaluated() })) == 3, err
	})
	p.marked(node, func(n *corev1.Node) bool { return !shows(n, "SysLogsXIDError") && n.Labels[nodemark.StateLabel] == "" })
}

// recovering goes without the node's monitor, which would report the recovery.
func (p *phaseSuite) recovering(node string) {
	p.fleet.Service(Monitor + "@" + node).Stop(p.Context())
	p.symptom(node, "48")
	p.stands(node, func(r record.Record) bool { return record.Remediated(r.Status) == "true" })
	p.marked(node, func(n *corev1.Node) bool {
		claimed := n.Annotations[nodemark.RepairAnnotation] != ""
		return n.Labels[nodemark.StateLabel] == string(nodemark.RemediationSucceeded) && kube.NodeReady(n) && !claimed
	})
}

// waitsForSymptoms is about a node that was just repaired.
func (p *phaseSuite) waitsForSymptoms(node string) {
	p.symptom(node, "95")
	p.waits(node, "AwaitingSymptomRecovery")
	p.marked(node, func(n *corev1.Node) bool { return n.Labels[nodemark.StateLabel] == string(nodemark.Remediating) })
}

func (p *phaseSuite) waits(node, reason string) {
	p.Helper()
	p.stands(node, func(r record.Record) bool {
		rem := r.Status.Remediation
		return rem != nil && rem.Waiting != nil && rem.Waiting.Reason == reason
	})
}

func (p *phaseSuite) waitsForPods(node string) {
	p.without("fault-remediation", func() {
		p.fault(node)
		p.stands(node, func(r record.Record) bool { return r.Status.DrainFinishTimestamp != nil })
		p.without("node-drainer", func() { p.stuck(node, "back") }) // a pod that is not Running yet no budget protects
		// The drainer's own list stands for fault-remediation's until it is two seconds old.
		p.stands(node, func(r record.Record) bool { return time.Since(*r.Status.DrainFinishTimestamp) > 3*time.Second })
	})
	p.waits(node, "AwaitingPodRemoval")
}

func (p *phaseSuite) waitsForClaim(node string) {
	p.without("fault-remediation", func() {
		p.fault(node)
		p.stands(node, func(r record.Record) bool { return r.Status.DrainFinishTimestamp != nil })
		p.edit(node, func(n *corev1.Node) { n.Annotations[nodemark.RepairAnnotation] = "somebody-elses" })
	})
	p.waits(node, "AwaitingClaim")
}

// dryRun has another fault-quarantine in the place of the first.
func (p *phaseSuite) dryRun(node string) {
	p.without("fault-quarantine", func() {
		dry := p.fleet.Launch("fault-quarantine-dry", "fault-quarantine", []string{
			"--kubeconfig", p.fleet.kube["fault-quarantine"], "--metrics-address", "127.0.0.1:0", "--store", p.fleet.DSN, "--single-host", "--dry-run=true",
		}, nil)
		p.fault(node)
		p.stands(node, func(r record.Record) bool { return r.Reason() == record.DryRun })
		p.marked(node, func(n *corev1.Node) bool { return shows(n, "SysLogsXIDError") })
		dry.Stop(p.Context())
	})
}

// unknownSession marks a Node for a fault that the store does not know.
func (p *phaseSuite) unknownSession(node string) {
	const id = "01890000-0000-7000-8000-000000000001"
	active, err := protojson.Marshal(&protos.HealthEvent{
		Id: id, NodeName: node, Agent: Monitor, CheckName: "SysLogsXIDError", IsFatal: true, ErrorCode: []string{"79"}, Message: "from a store that is gone",
	})
	if err != nil {
		p.Fatal(err)
	}
	p.edit(node, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations[nodemark.SessionAnnotation], n.Annotations[nodemark.QuarantineHealthEventIsCordoned] = id, nodemark.True
		n.Annotations[nodemark.QuarantineHealthEvent] = "[" + string(active) + "]"
	})
	p.marked(node, func(n *corev1.Node) bool { return n.Annotations[nodemark.UnknownAnnotation] != "" })
}
