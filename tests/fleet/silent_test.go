package fleet

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The nodes of the test.
const (
	silent          = "gpu-1" // its kubelet is dead until its machine is rebooted
	briefOutageNode = "gpu-0" // its kubelet comes back by itself
)

var repairRuns = schema.GroupVersionResource{Group: "nvsentinel.dgxc.nvidia.com", Version: "v1alpha1", Resource: "repairruns"}

// inSteps tries three chains for a silent node: one whose check fails, one that nobody
// ever evaluates, and one that reboots and validates.
const inSteps = `
apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1
kind: RepairChain
metadata: {name: look}
spec:
  steps:
  - {name: look, template: validate, inputs: [{name: boot, value: "''"}, {name: xid, value: "''"}]}
  - {name: reboot, template: reboot}
---
apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1
kind: RepairChain
metadata: {name: whole}
spec:
  steps:
  - {name: reboot, template: reboot}
  - {name: validate, template: validate, inputs: [{name: boot, value: outputs.reboot.boot}, {name: xid, value: "''"}]}
---
apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1
kind: RepairRunTemplate
metadata: {name: failing, annotations: {remediation.medik8s.io/multiple-templates-support: "true"}}
spec: {template: {spec: {chain: look}}}
---
apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1
kind: RepairRunTemplate
metadata: {name: endless, annotations: {remediation.medik8s.io/multiple-templates-support: "true"}}
spec: {template: {spec: {chain: look}}}
---
apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1
kind: RepairRunTemplate
metadata: {name: whole, annotations: {remediation.medik8s.io/multiple-templates-support: "true"}}
spec: {template: {spec: {chain: whole}}}
---
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: in-steps}
spec:
  selector: {matchLabels: {nvidia.com/gpu.present: "true"}}
  minHealthy: 1
  healthyDelay: -1s # until the test says so
  unhealthyConditions:
    - {type: Ready, status: "False", duration: 0s}
    - {type: Ready, status: Unknown, duration: 0s}
  escalatingRemediations:
    - {order: 1, timeout: 1h, remediationTemplate: {apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1, kind: RepairRunTemplate, name: failing}}
    - {order: 2, timeout: 60s, remediationTemplate: {apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1, kind: RepairRunTemplate, name: endless}}
    - {order: 3, timeout: 1h, remediationTemplate: {apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1, kind: RepairRunTemplate, name: whole}}
`

// TestASilentNode: with the janitor, its plugin, node-health-check and repair-chain as
// processes, a node whose kubelet is silent has a chain that fails, one whose time runs
// out, and one that reboots it once and validates it, although both services are killed
// between their writes. Another node, which comes back while its chain is under way, is
// not rebooted. Nothing is left of either.
func TestASilentNode(t *testing.T) {
	testkit.Long(t, "repair-chain's and node-health-check's internal/reconciler, each with the other played, on a real API server")
	once := t.TempDir()
	b := startSilent(t, once)
	b.power(silent, false)
	b.verdict(b.validationOf(silent, "failing"), "False")
	left := b.validationOf(silent, "endless")
	b.endedBy("failing", "StepFailed")
	b.endedBy("endless", "TimedOutByNHC")
	b.expectAbandoned(left)
	b.verdict(b.validationOf(silent, "whole"), "True")
	b.endedBy("whole", "Done")
	if n, err := b.fleet.Reboots(silent); n != 1 || err != nil {
		t.Errorf("%d reboots, %v", n, err)
	}
	b.confirm(silent)
	b.nothingIsLeft()

	b.power(briefOutageNode, false)
	b.validationOf(briefOutageNode, "failing")
	b.confirm(briefOutageNode)
	b.power(briefOutageNode, true)
	b.nothingIsLeft()
	if n, err := b.fleet.Reboots(briefOutageNode); n != 0 || err != nil {
		t.Errorf("%d reboots of a node that came back by itself, %v", n, err)
	}
	for _, point := range []string{"repair-chain_kept", "repair-chain_created", "repair-chain_held", "node-health-check_claimed", "node-health-check_created", "node-health-check_acted"} {
		if _, err := os.Stat(filepath.Join(once, point)); err != nil {
			t.Errorf("nobody was killed at %s: %v", point, err)
		}
	}
}

func startSilent(t *testing.T, once string) *pauseSuite {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard, "-tags", "crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Nodes: 2, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, RebootTime: time.Second,
		Chains: []string{filepath.Join(root, "tests/fleet/testdata/chain.yaml")},
		Runs: func(service, _ string) bool {
			return service == "janitor" || service == "csp-plugin-kwok" || service == RepairChain
		},
		Env: crashEnv(RepairChain, once, "kept:5", "created", "held:2"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs("", 30))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	kills := "NVSENTINEL_CRASH=" + nodeHealthCheck + "/claimed," + nodeHealthCheck + "/created," + nodeHealthCheck + "/acted"
	startNodeHealthCheck(t, f, inSteps, []string{kills, "NVSENTINEL_CRASH_ONCE=" + once})
	return &pauseSuite{t, f, map[string]int{}}
}

func (ps *pauseSuite) power(node string, on bool) {
	ps.Helper()
	if err := ps.fleet.Cluster.SetPower(ps.Context(), node, on); err != nil {
		ps.Fatal(err)
	}
}

// confirm is a person's word that a node is healthy.
func (ps *pauseSuite) confirm(node string) {
	ps.Helper()
	patch := []byte(`{"metadata":{"annotations":{"remediation.medik8s.io/manually-confirmed-healthy":""}}}`)
	if _, err := ps.fleet.Cluster.Client().CoreV1().Nodes().Patch(ps.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		ps.Fatal(err)
	}
}

// validationOf waits for the validation that the run of a template for a node makes.
func (ps *pauseSuite) validationOf(node, template string) (name string) {
	ps.Helper()
	ps.until(func(ctx context.Context) (bool, error) {
		run, err := ps.runOf(ctx, template)
		if err != nil || run == nil || run.GetAnnotations()["remediation.medik8s.io/node-name"] != node {
			return false, err
		}
		made, err := ps.fleet.Cluster.Dynamic().Resource(validations).List(ctx, metav1.ListOptions{LabelSelector: "nvsentinel.dgxc.nvidia.com/repair-run=" + run.GetName()})
		if err != nil || len(made.Items) == 0 {
			return false, err
		}
		name = made.Items[0].GetName()
		return true, nil
	})
	return name
}

// runOf is the run of a template; nil without one.
func (ps *pauseSuite) runOf(ctx context.Context, template string) (*unstructured.Unstructured, error) {
	all, err := ps.fleet.Cluster.Dynamic().Resource(repairRuns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, run := range all.Items {
		if run.GetAnnotations()["remediation.medik8s.io/template-name"] == template {
			return &run, nil
		}
	}
	return nil, nil
}

// endedBy waits until the run of a template has ended, for a reason.
func (ps *pauseSuite) endedBy(template, reason string) {
	ps.Helper()
	var end healthrule.Condition
	ps.until(func(ctx context.Context) (bool, error) {
		run, err := ps.runOf(ctx, template)
		end, _ = healthrule.ConditionOf(run, "Succeeded")
		return end.Status != "" && end.Status != "Unknown", err
	})
	if end.Reason != reason {
		ps.Errorf("the run of %s ended by %s: %s; want %s", template, end.Reason, end.Message, reason)
	}
}

func (ps *pauseSuite) expectAbandoned(validation string) {
	ps.Helper()
	o, err := ps.fleet.Cluster.Dynamic().Resource(validations).Get(ps.Context(), validation, metav1.GetOptions{})
	if err != nil || o.GetAnnotations()["remediation.medik8s.io/nhc-timed-out"] == "" {
		ps.Errorf("%s was not told that it is given up: %v, %v", validation, o, err)
	}
}

// nothingIsLeft of any run.
func (ps *pauseSuite) nothingIsLeft() {
	ps.Helper()
	for _, kind := range []schema.GroupVersionResource{repairRuns, rebootNodes, validations} {
		ps.until(func(ctx context.Context) (bool, error) {
			left, err := ps.fleet.Cluster.Dynamic().Resource(kind).List(ctx, metav1.ListOptions{})
			return err == nil && meta.LenList(left) == 0, err
		})
	}
}
