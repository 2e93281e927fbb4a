package fleet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The nodes of TestUpgrade, by the phase that the upgrade finds their repair in.
const (
	untouched   = "gpu-0"  // its RebootNode was created, and no janitor has seen it
	claimedOnly = "gpu-1"  // its RebootNode has claimed it; the emergency stop holds the signal
	unanswered  = "gpu-2"  // the signal is noted and sent, and nobody has answered
	rebooting   = "gpu-3"  // the signal is acknowledged, the machine is down
	recovering  = "gpu-4"  // repaired; its recovery is not reported
	failedOnce  = "gpu-5"  // its first repair, a RepairRun, has failed: the second waits
	terminating = "gpu-6"  // the signal is acknowledged, the machine is still there
	over        = "gpu-7"  // its session has ended
	firstTurn   = "gpu-8"  // the first remediation of its NodeHealthCheck waits for a verdict
	secondTurn  = "gpu-9"  // the first one has failed, and the second one's reboot is sent
	servicesOff = "gpu-10" // its GPUReset waits for a pod of the GPU services to go
)

var (
	ofSessions = []string{untouched, claimedOnly, unanswered, rebooting, recovering, failedOnce, over}
	ofCheck    = []string{firstTurn, secondTurn, servicesOff} // the last one is the healthy one

	terminateNodes = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "terminatenodes"}
	gpuResets      = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "gpuresets"}
)

const (
	gpuService = "nvidia-dcgm"
	gpuLabel   = "nvidia.com/gpu.deploy.dcgm"
	operators  = "gpu-operator" // the namespace of the GPU services

	// firstBackoff is the back-off behind the first failure; the upgrade is within it.
	firstBackoff = time.Minute
)

// upgradeActions has a reset done by a chain, which the test lets fail.
const upgradeActions = `
[remediationActions.RESTART_BM]
apiGroup = "janitor.dgxc.nvidia.com"
version = "v1alpha1"
kind = "RebootNode"
templateFileName = "embedded:rebootnode.yaml"
equivalenceGroup = "restart"
healthRule.multiMatch.healthy.matchConditions = [{type = "NodeReady", status = "True"}]
healthRule.multiMatch.unhealthy.matchConditions = [{type = "SignalSent", status = "False"}, {type = "NodeReady", status = "False"}]

[remediationActions.REPLACE_VM]
apiGroup = "janitor.dgxc.nvidia.com"
version = "v1alpha1"
kind = "TerminateNode"
templateFileName = "embedded:terminatenode.yaml"
equivalenceGroup = "terminate"
healthRule.multiMatch.healthy.matchConditions = [{type = "NodeTerminated", status = "True"}]
healthRule.multiMatch.unhealthy.matchConditions = [{type = "SignalSent", status = "False"}, {type = "NodeTerminated", status = "False"}]

[remediationActions.COMPONENT_RESET]
chain = "reboot-and-validate"
equivalenceGroup = "reset"
backoff = "1m"
`

// twoTurns has a chain that fails, and then one that reboots and validates.
const twoTurns = `
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
metadata: {name: whole, annotations: {remediation.medik8s.io/multiple-templates-support: "true"}}
spec: {template: {spec: {chain: whole}}}
---
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: two-turns}
spec:
  selector: {matchLabels: {upgrade: checked}}
  minHealthy: 1
  healthyDelay: -1s # until the test says so
  unhealthyConditions:
    - {type: Ready, status: "False", duration: 0s}
    - {type: Ready, status: Unknown, duration: 0s}
  escalatingRemediations:
    - {order: 1, timeout: 1h, remediationTemplate: {apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1, kind: RepairRunTemplate, name: failing}}
    - {order: 2, timeout: 2h, remediationTemplate: {apiVersion: nvsentinel.dgxc.nvidia.com/v1alpha1, kind: RepairRunTemplate, name: whole}}
`

// upgrade is a fleet of an earlier version that becomes the present one.
type upgrade struct {
	versions
	made *slots
}

// TestUpgrade: sessions, RebootNodes, a TerminateNode, a GPUReset, RepairRuns and the
// remediations of a NodeHealthCheck are brought into every phase by the programs of an
// earlier commit. All of these are stopped, and the present ones started: each repair ends
// as it would have, nothing is created twice, and no machine is asked twice.
func TestUpgrade(t *testing.T) {
	testkit.Long(t, "the golden scripts of fault-remediation, the janitor, repair-chain and node-health-check")
	u := startUpgrade(t)
	u.sessions()
	u.chainFails()
	u.check()
	u.reset()
	u.waitPaused()
	u.replace()
	u.goOn()
	u.eachOnce()
}

func startUpgrade(t *testing.T) *upgrade {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	old, err := BuildEarlier(t.Context(), root, earlier, io.Discard)
	if errors.Is(err, ErrNoHistory) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	current, err := Build(t.Context(), root, t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Nodes: 11, Store: "sqlite", Root: root, Bin: old, Progress: io.Discard, SettleTime: 15 * time.Second, RebootTime: time.Second,
		Chains:            []string{filepath.Join(root, "tests/fleet/testdata/chain.yaml")},
		RemediationConfig: upgradeActions,
		JanitorFlags: []string{
			"--gpu-reset-enabled", "--gpu-reset-image", "example.com/gpu-reset:1", "--gpu-reset-job-namespace", "nvsentinel",
			"--plugin-timeout", "5s", "--resend-after", "20s", "--poll-interval", "2s",
		},
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
		Runs: func(service, node string) bool {
			return node == "" || slices.Contains(ofSessions, node) || node == terminating
		},
		Before: func(ctx context.Context, f *Fleet) error {
			if _, err := f.Cluster.AddPod(ctx, localcluster.PodSpec{Namespace: operators, Name: gpuService, Node: servicesOff}); err != nil {
				return err
			}
			return f.applyFile(ctx, filepath.Join(root, "distros/helm/nvsentinel/manifests/gpu-reset.yaml"))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(untouched, 40))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	u := &upgrade{versions: versions{pauseSuite: pauseSuite{t, f, map[string]int{}}, old: old, current: current, waves: 1}}
	u.made = u.watchNames(rebootNodes, terminateNodes, gpuResets, repairRuns, validations, batchv1.SchemeGroupVersion.WithResource("jobs"))
	return u
}

// sessions brings the sessions that the provider holds into their phase.
func (u *upgrade) sessions() {
	u.Helper()
	u.fault(over)
	u.rebooted(over)
	u.until(func(ctx context.Context) (bool, error) { return u.inService(ctx, over) })
	u.provider(unanswered, "hang")
	u.provider(rebooting, "stall")
	u.provider(terminating, "stall")
	for _, node := range []string{unanswered, rebooting, recovering} {
		u.fault(node)
	}
	u.report(&protos.HealthEvent{
		NodeName: terminating, IsFatal: true, ErrorCode: []string{"79"}, RecommendedAction: protos.RecommendedAction_REPLACE_VM, Message: "off the bus",
		EntitiesImpacted: []*protos.Entity{{EntityType: "GPU", EntityValue: "0"}},
	})
	u.booked(unanswered, "hung")
	u.booked(rebooting, "powered-off")
	u.booked(terminating, "powered-off")
	u.acknowledged(rebootNodes, rebooting)
	u.acknowledged(terminateNodes, terminating)
	u.rebooted(recovering)
	u.repaired(recovering)
	u.fleet.Service(Monitor + "@" + recovering).Freeze(true)
}

// chainFails has the first run of a chain fail by its validation.
func (u *upgrade) chainFails() {
	u.Helper()
	if _, err := u.fleet.WriteXID(failedOnce, 0, 46); err != nil {
		u.Fatal(err)
	}
	u.setVerdict(failedOnce, 1, "False")
	u.latest(failedOnce, func(s record.Status) bool {
		return s.Remediation != nil && len(s.Remediation.Attempts) == 1 && s.Remediation.Attempts[0].FinishedAt != nil
	})
}

// check has a NodeHealthCheck look after three nodes, of which two have no power.
func (u *upgrade) check() {
	u.Helper()
	u.provider(secondTurn, "stall")
	for _, node := range ofCheck {
		u.patchNode(node, `{"metadata":{"labels":{"upgrade":"checked"}}}`)
	}
	startNodeHealthCheck(u.T, u.fleet, twoTurns, nil)
	u.power(firstTurn, false)
	u.power(secondTurn, false)
	u.setVerdict(secondTurn, 1, "False")
	u.until(func(ctx context.Context) (bool, error) { return len(u.of(ctx, validations, firstTurn)) == 1, nil })
	u.acknowledged(rebootNodes, secondTurn)
}

// reset begins a manual reset of GPUs, which a pod of the GPU services blocks.
func (u *upgrade) reset() {
	u.Helper()
	u.patchNode(servicesOff, `{"metadata":{"labels":{"`+gpuLabel+`":"true"}}}`)
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": servicesOff}}}
	o.SetGroupVersionKind(gpuResets.GroupVersion().WithKind("GPUReset"))
	o.SetName("by-hand")
	if _, err := u.fleet.Cluster.Dynamic().Resource(gpuResets).Create(u.Context(), o, metav1.CreateOptions{}); err != nil {
		u.Fatal(err)
	}
	u.serviceLabel("false")
}

// waitPaused has the janitor claim a node and wait at the emergency stop; it does not
// see the last RebootNode any more.
func (u *upgrade) waitPaused() {
	u.Helper()
	janitor := u.fleet.Service("janitor")
	err := janitor.Swap(func() error {
		u.fault(claimedOnly)
		u.until(func(ctx context.Context) (bool, error) { return u.objects(ctx, claimedOnly) == 1, nil })
		u.cli("brake", "on", "--reason", "upgrade") // as the earlier command line has it
		return nil
	})
	if err != nil {
		u.Fatal(err)
	}
	u.until(func(ctx context.Context) (bool, error) {
		node, err := u.fleet.Node(ctx, claimedOnly)
		return err == nil && nodemark.Read(node).Claim != "", err
	})
	janitor.Freeze(true)
	u.cli("brake", "off")
	u.fault(untouched)
	u.until(func(ctx context.Context) (bool, error) { return u.objects(ctx, untouched) == 1, nil })
}

// replace stops the earlier programs and starts the present ones. The machines that are
// down come up from then on.
func (u *upgrade) replace() {
	u.Helper()
	for _, node := range []string{unanswered, secondTurn} {
		u.provider(node, "")
	}
	u.change(func(string) string { return u.current })
	journal := filepath.Join(u.fleet.Dir, "journal.jsonl")
	err := u.fleet.Service("csp-plugin-kwok").Swap(func() error {
		text, err := os.ReadFile(journal)
		if err != nil {
			return err
		}
		return os.WriteFile(journal, bytes.ReplaceAll(text, []byte(`"fault":"stall"`), []byte(`"fault":""`)), 0o600)
	})
	if err != nil {
		u.Fatal(err)
	}
}

// provider has the provider do something wrong with a node from now on; nothing is right.
func (u *upgrade) provider(node, fault string) {
	u.Helper()
	u.patchNode(node, `{"metadata":{"annotations":{"nvsentinel.nvidia.com/simulated-reboot":"`+fault+`"}}}`)
}

func (u *upgrade) patchNode(node, patch string) {
	u.Helper()
	nodes := u.fleet.Cluster.Client().CoreV1().Nodes()
	if _, err := nodes.Patch(u.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		u.Fatal(err)
	}
}

// booked waits until the provider has done something with a node.
func (u *upgrade) booked(node, effect string) {
	u.Helper()
	u.until(func(context.Context) (bool, error) {
		journal, err := u.fleet.JournalEntries()
		return slices.ContainsFunc(journal, func(e Entry) bool { return e.Node == node && e.Effect == effect }), err
	})
}

// acknowledged waits until an object for a node has noted that its signal arrived.
func (u *upgrade) acknowledged(kind schema.GroupVersionResource, node string) {
	u.Helper()
	u.until(func(ctx context.Context) (bool, error) {
		for _, o := range u.of(ctx, kind, node) {
			if c, ok := healthrule.ConditionOf(o, "SignalSent"); ok && c.Status == "True" {
				return true, nil
			}
		}
		return false, nil
	})
}
