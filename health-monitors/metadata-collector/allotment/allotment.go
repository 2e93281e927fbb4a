// Package allotment decides which pods of a node must be annotated with the GPUs
// that the kubelet gave them. It does no I/O.
package allotment

import (
	"cmp"
	"slices"

	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Pod names one pod.
type Pod struct{ Namespace, Name string }

// Held is what the kubelet says of the node's running pods: the ids of the GPUs
// of each, by resource. A pod without GPUs is listed with none.
type Held map[Pod]map[string][]string

// Give adds ids of a resource to a pod; those of other resources than GPUs are
// left out. The order in which they come means nothing: the kubelet keeps them as a
// set and lists them in another order each time.
func (h Held) Give(p Pod, resource string, ids []string) {
	if h[p] == nil {
		h[p] = map[string][]string{}
	}
	if eviction.IsGPU(resource) && len(ids) > 0 {
		h[p][resource] = append(h[p][resource], ids...)
		slices.Sort(h[p][resource])
	}
}

// Marked is a pod as the API server has it.
type Marked struct {
	Pod
	// UID tells it from others of its name.
	UID string
	// Annotation is that of the devices, empty if it has none.
	Annotation string
}

// Change is what one pod's annotation must become.
type Change struct {
	Pod
	UID string
	// Annotation is the new value; empty takes it away.
	Annotation string
}

// Changes lists what must change, by namespace and name; all is false if a pod
// that holds GPUs is not among the pods yet. Of a pod that the kubelet does not
// list nothing is known: what it has stays.
func Changes(held Held, pods []Marked) (changes []Change, all bool) {
	there := map[Pod]bool{}
	for _, p := range pods {
		there[p.Pod] = true
		given, listed := held[p.Pod]
		if want := nodemark.EncodeDevices(given); listed && want != p.Annotation {
			changes = append(changes, Change{p.Pod, p.UID, want})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for p, given := range held {
		if len(given) > 0 && !there[p] {
			return changes, false
		}
	}
	return changes, true
}
