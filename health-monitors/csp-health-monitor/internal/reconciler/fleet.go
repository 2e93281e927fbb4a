package reconciler

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// Node is a Node of the cluster.
type Node struct {
	Name string
	// Machine is the provider's name of its machine; empty where its providerID is not
	// this provider's, or where it has none yet.
	Machine string
	Ready   bool
}

// Fleet is all Nodes at one time.
type Fleet struct {
	// Known is true if they have been read.
	Known    bool
	byName   map[string]Node
	claims   map[string][]Node // by machine
	names    map[string][]string
	Machines []announcement.Machine
}

// Of makes a fleet of Nodes. Which machine a Node is follows from its spec.providerID,
// which its own kubelet may write.
func Of(nodes []*corev1.Node, machine func(providerID string) (string, bool)) Fleet {
	f := Fleet{Known: true, byName: make(map[string]Node, len(nodes)), claims: make(map[string][]Node, len(nodes))}
	for _, n := range nodes {
		name, _ := machine(n.Spec.ProviderID)
		node := Node{Name: n.Name, Machine: name, Ready: ready(n)}
		f.byName[n.Name] = node
		if name == "" {
			continue
		}
		if len(f.claims[name]) == 0 {
			f.Machines = append(f.Machines, announcement.Machine{Name: name, ProviderID: n.Spec.ProviderID})
		}
		f.claims[name] = append(f.claims[name], node)
	}
	return f
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Contested are the machines that several Nodes claim, with the names of these Nodes.
func (f Fleet) Contested() map[string][]string {
	out := map[string][]string{}
	for machine, nodes := range f.claims {
		if len(nodes) < 2 {
			continue
		}
		for _, n := range nodes {
			out[machine] = append(out[machine], n.Name)
		}
		slices.Sort(out[machine])
	}
	return out
}

// WithNames is the fleet when the provider's own names of machines are known.
func (f Fleet) WithNames(names map[string][]string) Fleet {
	f.names = names
	return f
}

// OfMachine is the Node of a machine. Of several that claim it, it is the one whose name is
// the provider's own for the machine; if none is, or several are, the machine is contested
// and has no Node.
func (f Fleet) OfMachine(machine string) (n Node, contested bool) {
	claims := f.claims[machine]
	if len(claims) == 1 {
		return claims[0], false
	}
	var proven []Node
	for _, claim := range claims {
		if slices.ContainsFunc(f.names[machine], func(name string) bool { return strings.EqualFold(name, claim.Name) }) {
			proven = append(proven, claim)
		}
	}
	if len(proven) == 1 {
		return proven[0], false
	}
	return Node{}, len(claims) > 0
}

// Named is the Node of a name.
func (f Fleet) Named(name string) (Node, bool) {
	n, ok := f.byName[name]
	return n, ok
}

// Cached reads the fleet from a cache of Nodes; synced reports whether the cache is filled.
func Cached(nodes listers.NodeLister, synced func() bool, machine func(string) (string, bool)) func() Fleet {
	return func() Fleet {
		if !synced() {
			return Fleet{}
		}
		list, err := nodes.List(labels.Everything())
		if err != nil {
			return Fleet{}
		}
		return Of(list, machine)
	}
}

// MaxContested bounds the machines about which the provider is asked in one reading whose
// they are. What is beyond it stays contested.
const MaxContested = 100

// identify asks the provider for its own names of the machines that several Nodes claim:
// a Node's providerID may be its kubelet's word. Without an answer they stay contested.
func (r *Reconciler) identify(ctx context.Context, machines Fleet) {
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
		r.Log.Warn("provider query for the owners of contested machines failed, machines stay contested", "error", err)
	}
	r.names = names
}

// machines is the fleet, with what the provider reported about contested machines.
func (r *Reconciler) machines() Fleet { return r.Fleet().WithNames(r.names) }

// reportContested shows the machines that several Nodes claim, and logs each that is new, or
// is none any more.
func (r *Reconciler) reportContested(machines Fleet) {
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
			r.Log.Warn("machine claimed by several nodes and none verified: no node is quarantined or released for its maintenance, delete the outdated or invalid Node objects",
				"machine", machine, "nodes", nodes)
		} else {
			r.Log.Warn("machine claimed by several nodes, only the node verified by the provider counts", "machine", machine, "nodes", nodes, "verified", node.Name)
		}
	}
	for machine := range r.contested {
		if _, still := now[machine]; !still {
			r.Log.Info("machine claim conflict resolved", "machine", machine)
		}
	}
	r.contested = now
	r.Metrics.Contested.Set(float64(undecided))
}
