package journey

import (
	"testing"

	"github.com/nvidia/nvsentinel/tests/fleet"
)

const (
	listed       = "a watch begins with a list where the API server streams none (before Kubernetes 1.34)"
	repeated     = "an Event that is there already: internal/eventrecorder, tests/access"
	replaced     = "a machine is replaced: fault-remediation's and janitor's own tests, tests/stories 16_replaced"
	pausedTested = "the emergency brake is switched: internal/pause, tests/fleet TestPause"
	leased       = "nodes of NodeHealthChecks: fault-remediation/internal/reconciler, tests/access TestLeasesOfNodes"
	watched      = "a machine may be in mid-boot although its Node says Ready: fault-remediation/internal/reconciler, tests/access"
	chained      = "a chain repairs: tests/fleet TestAChain, tests/access"
	token        = "tokens of publishers and callers: tests/objects, TestPluginJourney"
)

// unneeded are the rights that no journey needs, and what does.
var unneeded = map[string]string{
	"csp-plugin-kwok: create tokenreviews.authentication.k8s.io":          token,
	"fault-quarantine: create events nvsentinel":                          pausedTested,
	"fault-quarantine: create events default":                             "a budget is used up, or a person released a node: fault-quarantine's own tests",
	"fault-quarantine: list configmaps nvsentinel":                        listed,
	"fault-quarantine: list nodes":                                        listed,
	"fault-quarantine: patch events default":                              repeated,
	"fault-remediation: create events nvsentinel":                         pausedTested,
	"fault-remediation: create events default":                            "a person is called: fault-remediation's own tests",
	"fault-remediation: create leases.coordination.k8s.io medik8s-leases": leased,
	"fault-remediation: get leases.coordination.k8s.io medik8s-leases":    leased,
	"fault-remediation: update leases.coordination.k8s.io medik8s-leases": leased,
	"fault-remediation: get leases.coordination.k8s.io kube-node-lease":   watched,
	"fault-remediation: create terminatenodes.janitor.dgxc.nvidia.com":    replaced,
	"fault-remediation: create repairruns.nvsentinel.dgxc.nvidia.com":     chained,
	"fault-remediation: get repairruns.nvsentinel.dgxc.nvidia.com":        chained,
	"fault-remediation: list repairruns.nvsentinel.dgxc.nvidia.com":       chained,
	"fault-remediation: watch repairruns.nvsentinel.dgxc.nvidia.com":      chained,
	"fault-remediation: get terminatenodes.janitor.dgxc.nvidia.com":       replaced,
	"fault-remediation: list configmaps nvsentinel":                       listed,
	"fault-remediation: list gpuresets.janitor.dgxc.nvidia.com":           "a claim is looked at: fault-remediation's own tests",
	"fault-remediation: list nodes":                                       listed,
	"fault-remediation: list pods":                                        "a drain has ended more than two seconds ago: fault-remediation's own tests, tests/access",
	"fault-remediation: list rebootnodes.janitor.dgxc.nvidia.com":         listed,
	"fault-remediation: list terminatenodes.janitor.dgxc.nvidia.com":      listed,
	"fault-remediation: patch events default":                             repeated,
	"janitor: create events nvsentinel":                                   pausedTested,
	"janitor: delete nodes":                                               replaced,
	"janitor: delete rebootnodes.janitor.dgxc.nvidia.com":                 "objects are removed after days: janitor's own tests",
	"janitor: delete terminatenodes.janitor.dgxc.nvidia.com":              "objects are removed after days: janitor's own tests",
	"janitor: patch events default":                                       repeated,
	"janitor: get terminatenodes.janitor.dgxc.nvidia.com":                 replaced,
	"janitor: list configmaps nvsentinel":                                 listed,
	"janitor: list nodes":                                                 listed,
	"janitor: list rebootnodes.janitor.dgxc.nvidia.com":                   listed,
	"janitor: list terminatenodes.janitor.dgxc.nvidia.com":                listed,
	"janitor: patch terminatenodes.janitor.dgxc.nvidia.com":               replaced,
	"janitor: update terminatenodes/status.janitor.dgxc.nvidia.com":       replaced,
	"node-drainer: create events nvsentinel":                              pausedTested,
	"node-drainer: create events default":                                 "a drain is held up for long: node-drainer's own tests",
	"node-drainer: delete pods":                                           "a deadline has passed (DeleteAfterTimeout): node-drainer's own tests",
	"node-drainer: list configmaps nvsentinel":                            listed,
	"node-drainer: list nodes":                                            listed,
	"node-drainer: list pods":                                             listed,
	"node-drainer: list poddisruptionbudgets.policy":                      listed,
	"node-drainer: patch events default":                                  repeated,
	"platform-connectors: create events default":                          "faults that are not fatal: platform-connectors' own tests, tests/access",
	"platform-connectors: create tokenreviews.authentication.k8s.io":      token,
	"platform-connectors: get events default":                             repeated,
	"platform-connectors: get nodes":                                      "events of a publisher that speaks for all nodes: tests/objects",
	"platform-connectors: list nodes":                                     listed,
	"platform-connectors: patch events default":                           repeated,
}

// nothingRefused: the services ask for what they may do, as far as the API server's
// audit saw.
func nothingRefused(t *testing.T, rights *fleet.Rights) {
	t.Helper()
	for _, refusal := range rights.Refused() {
		t.Errorf("refused: %s", refusal)
	}
}

// needed: nothing is granted that no journey needed, and no other test needs.
func needed(t *testing.T, rights *fleet.Rights) {
	t.Helper()
	for _, unused := range rights.Unused("platform-connectors", "fault-quarantine", "node-drainer", "fault-remediation", "janitor", "csp-plugin-kwok") {
		if unneeded[unused] == "" {
			t.Errorf("a right that nobody used: %s", unused)
		}
	}
}
