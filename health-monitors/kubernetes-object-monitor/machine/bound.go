package machine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nvidia/nvsentinel/api/protos"
)

// The state is written into one object of the cluster, which takes 1 MiB. What it
// weighs is estimated from above by the parts that do not repeat, since the rest
// compresses to little: names that tenants choose, and an id.
const (
	// MaxEntries bounds the open faults and waiting events together.
	MaxEntries = 10_000
	// MaxBytes bounds their weight.
	MaxBytes = 700 << 10
	// maxNamespaced bounds the weight of all that is about objects in namespaces, which
	// tenants write: cluster-scoped objects always have space left.
	maxNamespaced = MaxBytes * 6 / 10
	// maxShare bounds the weight of one policy's faults in one namespace.
	maxShare = MaxBytes / 20

	openBytes, eventBytes = 24, 60
)

// Errors of a fault that was not begun. Recoveries always are: an event takes
// little more than the open fault that it ends.
var (
	// ErrFull means that the state is full.
	ErrFull = errors.New("too many open faults and pending events, so no fault begins before some end")
	// ErrShare means that a policy's faults in one namespace, or those of all
	// namespaces together, have used up their share of the state.
	ErrShare = errors.New("too many open faults and pending events of this namespace, so no fault begins in it before some end")
)

// share names whose share of the state an entry uses.
type share struct{ policy, namespace string }

// shareOf is the share of an object's entries; an object of the cluster has none.
func shareOf(policy, object string) (share, bool) {
	namespace, _, namespaced := strings.Cut(object, "/")
	return share{policy, namespace}, namespaced
}

// weights are what the state weighs, in bytes.
type weights struct {
	all, namespaced int
	shares          map[share]int
}

func (w *weights) add(policy, object string, bytes int) {
	w.all += bytes
	s, namespaced := shareOf(policy, object)
	if !namespaced {
		return
	}
	w.namespaced += bytes
	if w.shares[s] += bytes; w.shares[s] == 0 {
		delete(w.shares, s)
	}
}

// names weighs an object's name and its node's, which may be the same.
func names(object, node string) int {
	if object == node {
		return len(object)
	}
	return len(object) + len(node)
}

func weightOpen(k Key, f Fault) int { return openBytes + names(k.Object, f.Node) + f.Extra.Bytes() }

func (w *weights) open(k Key, f Fault, sign int) { w.add(k.Policy, k.Object, sign*weightOpen(k, f)) }

func (w *weights) event(e *protos.HealthEvent, sign int) {
	object := ""
	for _, entity := range e.EntitiesImpacted {
		object = entity.EntityValue
	}
	w.add(e.CheckName, object, sign*(eventBytes+names(object, e.NodeName)))
}

// hasCapacity returns why a fault cannot begin; nil if it can.
func (t *Tracker) hasCapacity(k Key, f Fault) error {
	need := weightOpen(k, f) + len(codes(f))*(eventBytes+names(k.Object, f.Node))
	s, namespaced := shareOf(k.Policy, k.Object)
	switch {
	case len(t.open)+len(t.waiting) >= MaxEntries || t.weights.all+need > MaxBytes:
		return fmt.Errorf("opening a fault of %s: %w", k.Policy, ErrFull)
	case namespaced && (t.weights.shares[s]+need > maxShare || t.weights.namespaced+need > maxNamespaced):
		return fmt.Errorf("opening a fault of %s in %s: %w", k.Policy, s.namespace, ErrShare)
	}
	return nil
}
