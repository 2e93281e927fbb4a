package demo

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// The node that a chain repairs, and the XID for which it does: a GPU's system processor
// that does not answer, whose action is COMPONENT_RESET.
const (
	chained    = "gpu-3"
	chainedXID = 119
	chainName  = "collect-reboot-validate"
)

// chainFiles have the chain and the templates of its steps.
func chainFiles(root string) (files []string) {
	for _, name := range []string{"reboot-and-validate", "collect-logs", "validate", "ticket", chainName} {
		files = append(files, filepath.Join(root, "examples/repair-chains", name+".yaml"))
	}
	return files
}

// remediation repairs that XID by the chain, and others as without a file.
const remediation = `
[remediationActions."RESTART_BM"]
apiGroup = "janitor.dgxc.nvidia.com"
version = "v1alpha1"
kind = "RebootNode"
equivalenceGroup = "restart"
templateFileName = "embedded:rebootnode.yaml"
[remediationActions."RESTART_BM".healthRule.multiMatch.healthy]
matchConditions = [{type = "NodeReady", status = "True"}]
[remediationActions."RESTART_BM".healthRule.multiMatch.unhealthy]
matchConditions = [{type = "SignalSent", status = "False"}, {type = "NodeReady", status = "False"}]
[remediationActions."COMPONENT_RESET"]
chain = "` + chainName + `"
equivalenceGroup = "reset"
`

// repairedByAChain has a GPU's processor fall silent, and follows the node through the
// steps of its chain: logs collected, rebooted, validated, and only then released.
func repairedByAChain(ctx context.Context, f *fleet.Fleet, o Options, say func(string, ...any)) error {
	s, err := follow(ctx, f, o, sense{node: chained, monitor: fleet.Monitor, check: "SysLogsXIDError", chain: true}, func() error {
		line, err := f.WriteXID(chained, 1, chainedXID)
		say("\nA fault that is repaired in steps: collect logs, reboot, validate. Kernel log line written on %s:\n  %s\n", chained, line)
		return err
	})
	if err != nil {
		return err
	}
	attempts := s.last.fault.Status.Remediation.Attempts
	if len(attempts) != 1 || attempts[0].Chain != chainName {
		return fmt.Errorf("the record has %d repair attempts, want one with chain %s: %+v", len(attempts), chainName, attempts)
	}
	return runCommand(ctx, f, o, []string{
		"for record " + s.last.fault.ID, "collect: Done", "reboot: Done", "validate: Done", "from reboot.boot", s.last.node.Status.NodeInfo.BootID,
	}, "trace", s.last.fault.ID)
}

// chainSteps adds the steps of a chain to the story of a single object.
func (s *story) chainSteps() {
	for _, name := range []string{"collect", "driver", "reboot", "validate"} {
		s.add(fleet.RepairChain, "step "+name+" done", func(_ *corev1.Node, f facts) bool { return f.chain[name] == v1alpha1.StepDone })
	}
}

// chainStates are the states of the steps of the node's runs.
func (s *story) chainStates(ctx context.Context) (map[string]v1alpha1.StepState, error) {
	list, err := s.fleet.Cluster.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("repairruns")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the runs of chains: %w", err)
	}
	states := map[string]v1alpha1.StepState{}
	for _, x := range list.Items {
		var run v1alpha1.RepairRun
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(x.Object, &run); err != nil {
			return nil, fmt.Errorf("reading run %s: %w", x.GetName(), err)
		}
		for _, step := range run.Status.Steps {
			if run.Spec.NodeName == s.name {
				states[step.Name] = step.State
			}
		}
	}
	return states, nil
}
