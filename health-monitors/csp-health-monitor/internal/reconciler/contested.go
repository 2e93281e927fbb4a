package reconciler

import (
	"context"
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/fleet"
)

// MaxContested bounds the machines about which the provider is asked in one reading whose
// they are. What is beyond it stays contested.
const MaxContested = 100

// identify asks the provider for its own names of the machines that several Nodes claim:
// a Node's providerID may be its kubelet's word. Without an answer they stay contested.
func (r *Reconciler) identify(ctx context.Context, machines fleet.Fleet) {
	contested := slices.Sorted(maps.Keys(machines.Contested()))
	if len(contested) == 0 {
		r.names = nil
		return
	}
	r.mu.Unlock() // as in read
	ctx, cancel := context.WithTimeout(ctx, readTime)
	names, err := r.Source.Names(ctx, contested[:min(len(contested), MaxContested)])
	cancel()
	r.mu.Lock()
	if err != nil {
		r.Log.Warn("asking the provider whose machines are that several nodes claim failed; they stay contested", "error", err)
	}
	r.names = names
}

// machines is the fleet, with what the provider said of contested machines.
func (r *Reconciler) machines() fleet.Fleet { return r.Fleet().WithNames(r.names) }

// reportContested shows the machines that several Nodes claim, and logs each that is new, or
// is none any more.
func (r *Reconciler) reportContested(machines fleet.Fleet) {
	now := map[string]string{}
	undecided := 0
	for machine, nodes := range machines.Contested() {
		node, contested := machines.OfMachine(machine)
		now[machine] = node.Name
		if contested {
			undecided++
		}
		if before, known := r.contested[machine]; known && before == node.Name {
			continue
		}
		if contested {
			r.Log.Warn("several nodes claim one machine and none can be verified: none is taken out of service or given back for its maintenance; delete the Node objects that are stale or foreign",
				"machine", machine, "nodes", nodes)
		} else {
			r.Log.Warn("several nodes claim one machine; only the one counts that the provider's name of the machine verifies", "machine", machine, "nodes", nodes, "verified", node.Name)
		}
	}
	for machine := range r.contested {
		if _, still := now[machine]; !still {
			r.Log.Info("a machine is claimed by one node at most again", "machine", machine)
		}
	}
	r.contested = now
	r.Metrics.Contested.Set(float64(undecided))
}
