// Package fleet is the machines of the cluster as their provider names them, read from
// a cache of Nodes.
package fleet

import (
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
	// Known says that they have been read.
	Known     bool
	byName    map[string]Node
	byMachine map[string]Node
	Machines  []announcement.Machine
}

// Of makes a fleet of Nodes. Of several Nodes of one machine the one that is ready
// counts, else the first by name.
func Of(nodes []*corev1.Node, machine func(providerID string) (string, bool)) Fleet {
	f := Fleet{Known: true, byName: make(map[string]Node, len(nodes)), byMachine: make(map[string]Node, len(nodes))}
	for _, n := range nodes {
		name, _ := machine(n.Spec.ProviderID)
		node := Node{Name: n.Name, Machine: name, Ready: ready(n)}
		f.byName[n.Name] = node
		if name == "" {
			continue
		}
		other, taken := f.byMachine[name]
		if !taken {
			f.Machines = append(f.Machines, announcement.Machine{Name: name, ProviderID: n.Spec.ProviderID})
		}
		if !taken || node.Ready != other.Ready && node.Ready || node.Ready == other.Ready && node.Name < other.Name {
			f.byMachine[name] = node
		}
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

// OfMachine is the Node of a machine.
func (f Fleet) OfMachine(machine string) (Node, bool) {
	n, ok := f.byMachine[machine]
	return n, ok
}

// Named is the Node of a name.
func (f Fleet) Named(name string) (Node, bool) {
	n, ok := f.byName[name]
	return n, ok
}

// Cached reads the fleet from a cache of Nodes that says whether it is filled.
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
