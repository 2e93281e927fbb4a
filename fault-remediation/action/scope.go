package action

import (
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// ScopeGPU is the only entity scope: that by which a drain can be partial too.
const ScopeGPU = "GPU_UUID"

// checkScope wants a scope of an action that leaves the machine running.
func (a Action) checkScope() error {
	switch {
	case a.EntityScope == "":
		return nil
	case a.EntityScope != ScopeGPU:
		return fmt.Errorf("impactedEntityScope: %q is not %s", a.EntityScope, ScopeGPU)
	case a.Rank >= RankReboot:
		return fmt.Errorf("impactedEntityScope: %s acts on the complete machine", a.Name)
	}
	return nil
}

// For is the action as it repairs a record's fault: of a scoped one each entity has
// a group of its own, <group>-<value>. A fault that names none, or more than one,
// is repaired under the group itself.
func (a Action) For(r record.Record) Action {
	if a.EntityScope == "" {
		return a
	}
	only := ""
	for _, x := range r.Event.EntitiesImpacted {
		switch {
		case x.EntityType != a.EntityScope || x.EntityValue == only:
		case only != "":
			return a
		default:
			only = x.EntityValue
		}
	}
	if only != "" {
		a.Group += "-" + only
	}
	return a
}
