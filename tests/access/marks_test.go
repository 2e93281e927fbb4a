package access

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestServicesWriteTheirMarks goes a node's whole way, each mark by the account that
// owns it and with the code that writes it: quarantine with taint and label of a rule
// set, drain, repair, a changed set of faults, release, and the removal of the Node.
func TestServicesWriteTheirMarks(t *testing.T) {
	w := newWorld(t)
	node := w.plain(t, "sick")
	inForce(t, w.account(t, "janitor"), node.Name)
	painter := marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}
	paint := func(d marks.Desired) func(*corev1.Node) {
		return func(n *corev1.Node) { painter.Apply(n, d, time.Now()); marks.FollowCordon(n) }
	}
	session := marks.Desired{
		Session: "session", RuleSets: []string{"gpu"}, Faults: []record.Event{{ID: "session", NodeName: node.Name}},
		Effects: record.Effects{
			Cordon: true, Taints: []record.Taint{{Key: "nvidia.com/gpu-error", Value: "fatal", Effect: "NoSchedule"}},
			Labels: []record.Label{{Key: "example.com/faulty", Value: "gpu"}},
		},
	}
	fewer := session
	fewer.Effects = record.Effects{Cordon: true}
	lost := session
	lost.Unknown = []string{"lost"}
	label := func(state nodemark.State) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[nodemark.StateLabel] = string(state) }
	}
	repair := func(n *corev1.Node) {
		n.Labels[nodemark.StateLabel] = string(nodemark.Remediating)
		n.Annotations[nodemark.LatestFaultRemediationState] = "{}"
	}
	repeatOffender := func(n *corev1.Node) {
		n.Labels[nodemark.RepeatOffenderLabel], n.Annotations[nodemark.RepeatOffenderAnnotation] = nodemark.RepeatOffenderTrue, "{}"
	}
	sweet := func(n *corev1.Node) {
		delete(n.Labels, nodemark.RepeatOffenderLabel)
		delete(n.Annotations, nodemark.RepeatOffenderAnnotation)
	}
	claim := func(n *corev1.Node) { n.Annotations[nodemark.RepairAnnotation] = "uid" }
	for _, step := range []struct {
		what, account string
		mutate        func(*corev1.Node)
	}{
		{"quarantine", "fault-quarantine", paint(session)},
		{"drain", "node-drainer", label(nodemark.Draining)},
		{"drained", "node-drainer", label(nodemark.DrainSucceeded)},
		{"repair", "fault-remediation", repair},
		{"lemon", "fault-remediation", repeatOffender},
		{"claim", "janitor", claim},
		{"services down", "janitor", func(n *corev1.Node) {
			n.Annotations[nodemark.ResetAnnotation] = "uid"
			for _, service := range gpuServices {
				n.Labels["nvidia.com/gpu.deploy."+service] = "false"
			}
		}},
		{"services back", "janitor", func(n *corev1.Node) {
			delete(n.Annotations, nodemark.ResetAnnotation)
			delete(n.Labels, "nvidia.com/gpu.deploy.dcgm")
			n.Labels["nvidia.com/gpu.deploy.device-plugin"] = "true"
		}},
		{"unclaim", "janitor", func(n *corev1.Node) { delete(n.Annotations, nodemark.RepairAnnotation) }},
		{"repaired", "fault-remediation", label(nodemark.RemediationSucceeded)},
		{"not repaired", "fault-remediation", label(nodemark.RemediationFailed)},
		{"fewer faults", "fault-quarantine", paint(fewer)},
		{"more faults", "fault-quarantine", paint(session)},
		{"release", "fault-quarantine", paint(marks.Desired{})},
		{"another machine is no lemon", "fault-remediation", sweet},
		{"a lemon's Node is back", "fault-remediation", repeatOffender},
		{"quarantine again", "fault-quarantine", paint(session)},
		{"claim again", "janitor", claim},
		{"session over while claimed", "fault-quarantine", paint(marks.Desired{})},
		{"orphaned claim found", "fault-remediation", func(n *corev1.Node) { delete(n.Annotations, nodemark.RepairAnnotation) }},
		{"quarantine with a fault that the store lost", "fault-quarantine", paint(lost)},
		{"claim once more", "janitor", claim},
	} {
		before := w.now(t, node.Name)
		after, err := kube.PatchNode(t.Context(), w.account(t, step.account), before, step.mutate)
		if err != nil {
			t.Fatalf("%s: %v\n%s", step.what, err, show(before))
		}
		if after.ResourceVersion == before.ResourceVersion {
			t.Errorf("%s changes nothing", step.what)
		}
	}
	if err := w.account(t, "janitor").CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("the removal of a node whose machine is gone: %v", err)
	}
	simulated := w.plain(t, "simulated")
	for _, c := range []change{
		{patch: annotations("nvsentinel.nvidia.com/simulated-power", "off")},
		{status: true, patch: status("nodeInfo", map[string]any{"bootID": "next"})},
	} {
		if err := c.by(t.Context(), w.account(t, "csp-plugin-kwok"), simulated.Name); err != nil {
			t.Errorf("the simulation plugin: %v", err)
		}
	}
}

// gpuServices are those that a reset takes off a node, by the ends of their labels.
var gpuServices = []string{"device-plugin", "dcgm", "dcgm-exporter", "gpu-feature-discovery"}

// TestAResetChangesTheLabelsOfGPUServicesOnly: the janitor's hand on labels is as long
// as its reset, on a node that the reset has claimed.
func TestAResetChangesTheLabelsOfGPUServicesOnly(t *testing.T) {
	w := newWorld(t)
	node, janitor := w.plain(t, "reset"), w.account(t, "janitor")
	inForce(t, janitor, node.Name)
	down := func(mark any, labels map[string]any) change {
		return change{patch: map[string]any{"metadata": map[string]any{"labels": labels, "annotations": map[string]any{nodemark.ResetAnnotation: mark}}}}
	}
	dcgm := map[string]any{"nvidia.com/gpu.deploy.dcgm": "false"}
	refusal := func(what string, c change) {
		t.Helper()
		if err := c.by(t.Context(), janitor, node.Name); !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	refusal("a node that is not claimed", down("me", dcgm))
	if err := (change{patch: annotations(nodemark.RepairAnnotation, "me")}).by(t.Context(), janitor, node.Name); err != nil {
		t.Fatal(err)
	}
	refusal("no mark", change{patch: map[string]any{"metadata": map[string]any{"labels": dcgm}}})
	refusal("another's mark", down("other", dcgm))
	refusal("a service that is switched on", down("me", map[string]any{"nvidia.com/gpu.deploy.dcgm": "true"}))
	refusal("another label", down("me", map[string]any{"nvidia.com/gpu.deploy.dcgm": "false", "nvidia.com/gpu.deploy.driver": "false"}))
	refusal("a label that is lost", down("me", map[string]any{"kubernetes.io/hostname": nil}))
	if err := down("me", dcgm).by(t.Context(), janitor, node.Name); err != nil {
		t.Errorf("the labels of a reset: %v", err)
	}
	refusal("a label between", change{patch: labels("nvidia.com/gpu.deploy.dcgm", "true")})
	refusal("another label on the way back", down(nil, map[string]any{"nvidia.com/gpu.deploy.driver": "true"}))
	// The services come back, regardless of who removed the claim.
	if err := (change{patch: annotations(nodemark.RepairAnnotation, nil)}).by(t.Context(), w.admin, node.Name); err != nil {
		t.Fatal(err)
	}
	if err := down(nil, map[string]any{"nvidia.com/gpu.deploy.dcgm": nil}).by(t.Context(), janitor, node.Name); err != nil {
		t.Errorf("the labels after a reset: %v", err)
	}
}

// TestPolicyKnowsEveryMark: a mark that the policy does not name could not be written,
// and its service would stand still.
func TestPolicyKnowsEveryMark(t *testing.T) {
	source, err := os.ReadFile("../../internal/nodemark/nodemark.go")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile(manifests + "nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\s+\w+ +(?:State +)?= "([^"]*[/A-Z][^"]*)"`).FindAllStringSubmatch(string(source), -1)
	if len(found) < 10 {
		t.Fatalf("%d marks are declared, which cannot be all", len(found))
	}
	for _, mark := range found {
		if key := mark[1]; len(key) > len("True") && !strings.HasSuffix(key, "IsHealthy") && !strings.Contains(key, " ") &&
			!strings.HasSuffix(key, "IsNotHealthy") && !strings.Contains(string(policy), "'"+key+"'") {
			t.Errorf("nodes.yaml names no %s", key)
		}
	}
}

// TestRuleSetsMatchAdmissionPolicy: a label or taint that fault-quarantine's
// configuration admits can be written, and one that it refuses could not be.
func TestRuleSetsMatchAdmissionPolicy(t *testing.T) {
	w := newWorld(t)
	node := w.plain(t, "node")
	caller := w.account(t, "fault-quarantine")
	inForce(t, caller, node.Name)
	// A label that is there already is its owner's, and nothing is written.
	if err := (change{patch: metadata("labels", map[string]any{"kubernetes.io/hostname": nil, "nvidia.com/gpu.present": nil})}).by(t.Context(), w.admin, node.Name); err != nil {
		t.Fatal(err)
	}
	paint := func(d marks.Desired) func(*corev1.Node) {
		return func(n *corev1.Node) {
			marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}.Apply(n, d, time.Now())
			marks.FollowCordon(n)
		}
	}
	keys := []string{
		"example.com/faulty", "faulty", "dgxc.nvidia.com/faulty", "k8saas.nvidia.com/faulty", "nvidia.com/gpu.deploy.operands", "node.kubernetes.io/exclude-from-external-load-balancers",
		"node-role.kubernetes.io/control-plane", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "beta.kubernetes.io/os",
		"example.node-restriction.kubernetes.io/x", "nvidia.com/gpu.present", nodemark.RepeatOffenderLabel, nodemark.ManagedLabel, "k8saas.nvidia.com/ManagedByNVSentinel",
		"node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown",
	}
	for _, key := range keys {
		label, taint := &record.Label{Key: key, Value: "x"}, &record.Taint{Key: key, Effect: "NoSchedule"}
		for what, set := range map[string]rulematch.Set{"label": {Label: label}, "taint": {Taint: taint}} {
			set.Name, set.Match = "set", rulematch.Match{Any: []rulematch.Rule{{Kind: "HealthEvent", Expression: "true"}}}
			valid := rulematch.Validate([]rulematch.Set{set})
			desired := marks.Desired{Session: "session", Effects: record.Effects{Cordon: true}}
			if set.Label != nil {
				desired.Effects.Labels = []record.Label{*label}
			} else {
				desired.Effects.Taints = []record.Taint{*taint}
			}
			_, err := kube.PatchNode(t.Context(), caller, w.now(t, node.Name), paint(desired))
			if (err == nil) != (valid == nil) {
				t.Errorf("%s %s: the configuration says %v, the API server %v", what, key, valid, err)
			}
			if _, err := kube.PatchNode(t.Context(), caller, w.now(t, node.Name), paint(marks.Desired{})); err != nil {
				t.Fatalf("releasing: %v", err)
			}
		}
	}
}
