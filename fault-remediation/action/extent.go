package action

import (
	"fmt"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// janitorKinds are those of the janitor's kinds that act on the whole node.
var janitorKinds = []string{"RebootNode", "TerminateNode"}

// ActsOnNode reports whether the repair of an action certainly reboots or replaces
// the whole node, and how that is known: its kind is the janitor's, or its
// equivalence group is that of an action that does so by its name.
func (p Policy) ActsOnNode(name record.Action) (why string, certainly bool) {
	a, ok := p.Of(name)
	if !ok {
		return "", false
	}
	if a.GVK.Group == janitorGroup && slices.Contains(janitorKinds, a.GVK.Kind) {
		return "kind " + a.GVK.Kind, true
	}
	for _, whole := range []record.Action{record.ActionRestartVM, record.ActionRestartBM, record.ActionReplaceVM} {
		if other, ok := p.Of(whole); ok && other.Group == a.Group {
			return fmt.Sprintf("equivalenceGroup %q, the group of %s", a.Group, whole), true
		}
	}
	return "", false
}
