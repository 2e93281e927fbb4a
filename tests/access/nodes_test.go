package access

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// connectorCondition is what a connector writes: a condition of a check.
func connectorCondition(check string) change {
	return change{true, types.StrategicMergePatchType, status("conditions", []any{condition(check, nodemark.UnhealthyReason(check))})}
}

// connectorForgeries are what root on a node could do with its connector's token.
func connectorForgeries() map[string]change {
	ready := condition("Ready", "KubeletReady")
	twice := append([]any{condition("KernelDeadlock", nodemark.UnhealthyReason("KernelDeadlock"))}, ready)
	strategic := types.StrategicMergePatchType
	return map[string]change{
		"opt out":               {status: true, patch: labels(nodemark.ManagedLabel, nodemark.ManagedOptOut)},
		"lose the role":         {status: true, patch: labels("node-role.kubernetes.io/control-plane", nil)},
		"lose all labels":       {status: true, patch: metadata("labels", nil)},
		"taints that are ours":  {status: true, patch: annotations(nodemark.QuarantineHealthEventAppliedTaints, `[{"key":"x"}]`)},
		"a repair":              {status: true, patch: annotations(nodemark.RepairAnnotation, "uid")},
		"no session":            {status: true, patch: annotations(nodemark.SessionAnnotation, nil)},
		"an owner that is gone": {status: true, patch: metadata("ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}})},
		"a finalizer":           {status: true, patch: metadata("finalizers", []any{"example.com/for-ever"})},
		"another boot":          {status: true, patch: status("nodeInfo", map[string]any{"bootID": "forged"})},
		"another address":       {status: true, patch: status("addresses", []any{map[string]any{"type": "InternalIP", "address": "10.0.0.9"}})},
		"no GPUs":               {status: true, patch: status("allocatable", map[string]any{"nvidia.com/gpu": "0"})},
		"not ready":             {true, strategic, status("conditions", []any{ready})},
		"not ready by us":       {true, strategic, status("conditions", []any{condition("Ready", nodemark.UnhealthyReason("Ready"))})},
		"no conditions":         {status: true, patch: status("conditions", []any{})},
		"of another program":    {true, strategic, status("conditions", []any{condition("KernelDeadlock", "DockerHung")})},
		"taken over":            {true, strategic, status("conditions", []any{condition("Foreign", nodemark.UnhealthyReason("Foreign"))})},
		"a reason of ours":      {true, strategic, status("conditions", []any{condition("GpuAllWatch", "Forged")})},
		"in place of all":       {status: true, patch: status("conditions", twice)},
		"a cordon":              {patch: spec("unschedulable", true)},
	}
}

// TestConnectorWritesConditionsOnly of its own node, with the token that lies on it;
// the account of the control plane of all nodes.
func TestConnectorWritesConditionsOnly(t *testing.T) {
	w := newWorld(t)
	own, victim := w.node(t, "own"), w.node(t, "victim")
	for _, n := range []*corev1.Node{own, victim} {
		foreign := change{true, types.StrategicMergePatchType, status("conditions", []any{condition("Foreign", "SaysSo")})}
		if err := foreign.by(t.Context(), w.admin, n.Name); err != nil {
			t.Fatal(err)
		}
	}
	connector := w.onNode(t, "platform-connectors", own.Name)
	inForce(t, connector, own.Name, "status")
	callers := map[string]kubernetes.Interface{"of the node": connector, "of the cluster": w.account(t, "platform-connectors-cluster")}
	for name, caller := range callers {
		for _, node := range []*corev1.Node{own, victim} {
			was := w.now(t, node.Name)
			for what, c := range connectorForgeries() {
				if err := c.by(t.Context(), caller, node.Name); !refused(err) {
					t.Errorf("the connector %s, on %s: %s: %v, want it refused", name, node.Name, what, err)
				}
			}
			w.unchanged(t, was)
		}
	}
	for what, err := range map[string]error{
		"another node's condition":   connectorCondition("GpuAllWatch").by(t.Context(), connector, victim.Name),
		"by a token without a node":  connectorCondition("GpuAllWatch").by(t.Context(), w.account(t, "platform-connectors"), own.Name),
		"by a monitor of the node":   connectorCondition("GpuAllWatch").by(t.Context(), w.onNode(t, "syslog-health-monitor", own.Name), own.Name),
		"the node object of its own": connector.CoreV1().Nodes().Delete(t.Context(), own.Name, metav1.DeleteOptions{}),
	} {
		if !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	for what, err := range map[string]error{
		"its own":       connectorCondition("GpuAllWatch").by(t.Context(), connector, own.Name),
		"its own again": change{true, types.StrategicMergePatchType, status("conditions", []any{condition("GpuAllWatch", nodemark.HealthyReason("GpuAllWatch"))})}.by(t.Context(), connector, own.Name),
		"the cluster's": connectorCondition("NVMLError").by(t.Context(), callers["of the cluster"], victim.Name),
	} {
		if err != nil {
			t.Errorf("%s: %v, want it written", what, err)
		}
	}
}

// TestMarksCannotBeForged: each mark of a Node by each account that may patch Nodes and
// does not own the mark.
func TestMarksCannotBeForged(t *testing.T) {
	w := newWorld(t)
	node, plain := w.node(t, "victim"), w.plain(t, "plain")
	controllers := []string{"fault-quarantine", "node-drainer", "fault-remediation", "janitor"}
	inForce(t, w.account(t, "janitor"), node.Name)
	testkit.Until(t, 2*time.Minute, func() bool { // the policy of removals is another one
		return refused(w.account(t, "janitor").CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	})
	forgeries := []struct {
		what   string
		change change
		owner  string // whose it is; nobody's if empty
	}{
		{"opt out", change{patch: labels(nodemark.ManagedLabel, nodemark.ManagedOptOut)}, ""},
		{"the role lost", change{patch: labels("node-role.kubernetes.io/control-plane", nil)}, ""},
		{"no GPU", change{patch: labels("nvidia.com/gpu.present", nil)}, ""},
		{"a label that nobody claims", change{patch: labels("example.com/pool", "x")}, ""},
		{"all labels lost", change{patch: metadata("labels", nil)}, ""},
		{"an owner that is gone", change{patch: metadata("ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}})}, ""},
		{"a finalizer", change{patch: metadata("finalizers", []any{"example.com/for-ever"})}, ""},
		{"another machine", change{patch: spec("providerID", "kwok://another")}, ""},
		{"another's taint removed", change{patch: spec("taints", []any{})}, ""},
		{"a taint of Kubernetes", change{patch: spec("taints", []any{map[string]any{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}})}, ""},
		{"another boot", change{status: true, patch: status("nodeInfo", map[string]any{"bootID": "forged"})}, ""},
		{"an annotation of a person", change{patch: annotations("example.com/owner", "x")}, ""},
		{"the state of the quarantine", change{patch: labels(nodemark.StateLabel, nil)}, "fault-quarantine"},
		{"the state of the drain", change{patch: labels(nodemark.StateLabel, string(nodemark.DrainSucceeded))}, "node-drainer"},
		{"the state of the repair", change{patch: labels(nodemark.StateLabel, string(nodemark.RemediationSucceeded))}, "fault-remediation"},
		{"a session", change{patch: annotations(nodemark.SessionAnnotation, "forged")}, "fault-quarantine"},
		{"a claim on taints", change{patch: annotations(nodemark.QuarantineHealthEventAppliedTaints, `[{"key":"x"}]`)}, "fault-quarantine"},
		{"a cordon", change{patch: spec("unschedulable", true)}, "fault-quarantine"},
		{"a repair", change{patch: annotations(nodemark.RepairAnnotation, "forged")}, "janitor"},
		{"a lemon", change{patch: labels(nodemark.RepeatOffenderLabel, nodemark.RepeatOffenderTrue)}, "fault-remediation"},
		{"the repairs of a lemon", change{patch: annotations(nodemark.RepeatOffenderAnnotation, "{}")}, "fault-remediation"},
		{"a reset", change{patch: annotations(nodemark.ResetAnnotation, "forged")}, "janitor"},
		{"a GPU service off", change{patch: labels("nvidia.com/gpu.deploy.dcgm", "false")}, ""},
	}
	for _, account := range controllers {
		caller := w.account(t, account)
		was := w.now(t, node.Name)
		for _, f := range forgeries {
			if f.owner == account {
				continue
			}
			if err := f.change.by(t.Context(), caller, node.Name); !refused(err) {
				t.Errorf("%s: %s: %v, want it refused", account, f.what, err)
			}
		}
		if account != "janitor" && account != "fault-quarantine" {
			err := change{patch: labels(nodemark.StateLabel, string(nodemark.Draining))}.by(t.Context(), caller, plain.Name)
			if !refused(err) {
				t.Errorf("%s marks a node that is in no quarantine: %v, want it refused", account, err)
			}
		}
		if err := caller.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); !refused(err) {
			t.Errorf("%s removes a node that no repair claims: %v, want it refused", account, err)
		}
		w.unchanged(t, was)
	}
}

// TestTheSimulationPluginPlaysTheMachine of simulated nodes: their power and their boot id,
// and nothing else of them.
func TestTheSimulationPluginPlaysTheMachine(t *testing.T) {
	w := newWorld(t)
	node, real := w.node(t, "simulated"), w.plain(t, "real")
	if err := (change{patch: annotations("kwok.x-k8s.io/node", nil)}).by(t.Context(), w.admin, real.Name); err != nil {
		t.Fatal(err)
	}
	plugin := w.account(t, "csp-plugin-kwok")
	boot := change{status: true, patch: status("nodeInfo", map[string]any{"bootID": "forged"})}
	testkit.Until(t, 2*time.Minute, func() bool { // a policy takes effect shortly after it is applied
		err := boot.by(t.Context(), plugin, real.Name)
		return refused(err) && strings.Contains(err.Error(), "simulated nodes only")
	})
	forgeries := connectorForgeries()
	delete(forgeries, "another boot")
	forgeries["another boot of another kernel"] = change{status: true, patch: status("nodeInfo", map[string]any{"bootID": "x", "kernelVersion": "x"})}
	forgeries["another machine's identity"] = change{status: true, patch: status("nodeInfo", map[string]any{"systemUUID": "x"})}
	forgeries["a label"] = change{patch: labels(nodemark.StateLabel, nil)}
	forgeries["no session"] = change{patch: annotations(nodemark.SessionAnnotation, nil)}
	forgeries["power and a session"] = change{patch: metadata("annotations", map[string]any{
		"nvsentinel.nvidia.com/simulated-power": "off", nodemark.SessionAnnotation: "forged",
	})}
	forgeries["no taints"] = change{patch: spec("taints", []any{})}
	forgeries["another machine"] = change{patch: spec("providerID", "kwok://another")}
	was := w.now(t, node.Name)
	for what, c := range forgeries {
		if err := c.by(t.Context(), plugin, node.Name); !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	w.unchanged(t, was)
	for what, c := range map[string]change{
		"its power": {patch: annotations("nvsentinel.nvidia.com/simulated-power", "off")}, "its power again": {patch: annotations("nvsentinel.nvidia.com/simulated-power", nil)},
		"its boot": boot,
	} {
		if err := c.by(t.Context(), plugin, node.Name); err != nil {
			t.Errorf("%s: %v, want it written", what, err)
		}
	}
}

// TestNodeHealthCheckTakesAConfirmationOff: of a Node its account writes that alone.
func TestNodeHealthCheckTakesAConfirmationOff(t *testing.T) {
	const confirmed = "remediation.medik8s.io/manually-confirmed-healthy"
	w := newWorld(t)
	node := w.node(t, "confirmed")
	owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}
	for _, c := range []change{{patch: annotations(confirmed, "by me")}, {patch: metadata("ownerReferences", []any{owner})}} {
		if err := c.by(t.Context(), w.admin, node.Name); err != nil {
			t.Fatal(err)
		}
	}
	account := w.account(t, "node-health-check")
	inForce(t, account, node.Name)
	forgeries := connectorForgeries()
	delete(forgeries, "an owner that is gone") // which it has
	forgeries["another confirmation"] = change{patch: annotations(confirmed, "by them")}
	forgeries["no session"] = change{patch: annotations(nodemark.SessionAnnotation, nil)}
	forgeries["a claim"] = change{patch: annotations(nodemark.RepairAnnotation, "x")}
	forgeries["a label"] = change{patch: labels(nodemark.StateLabel, nil)}
	forgeries["another owner"] = change{patch: metadata("ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "none", "uid": "none"}})}
	forgeries["a finalizer of its own"] = change{patch: metadata("finalizers", []any{"example.com/for-ever"})}
	forgeries["no taints"] = change{patch: spec("taints", []any{})}
	forgeries["another machine"] = change{patch: spec("providerID", "kwok://another")}
	was := w.now(t, node.Name)
	for what, c := range forgeries {
		if err := c.by(t.Context(), account, node.Name); !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	if err := account.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); !refused(err) {
		t.Errorf("the node itself: %v, want it refused", err)
	}
	w.unchanged(t, was)
	if err := (change{patch: annotations(confirmed, nil)}).by(t.Context(), account, node.Name); err != nil {
		t.Errorf("a confirmation: %v, want it taken off", err)
	}
}
