package lifecycle

import (
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// entityProvider is the entity type of a provider.
const entityProvider = "CSP"

// Unreachable is the fault of a provider that cannot be read, told of the monitor's own
// node. It acts on nothing: no node is worse for it.
func Unreachable(p Place, node string, since, now time.Time) *maintenance.Waiting {
	e := provider(p, node, since, now)
	e.RecommendedAction = record.ActionContactSupport
	e.Message = fmt.Sprintf("%s cannot be read since %s: maintenance that it announces is not seen", p.CSP, since.UTC().Format(time.RFC3339))
	e.ID = record.DerivedID(fmt.Sprintf("csp %q unreachable on %q since %d", p.CSP, node, since.UnixMicro()))
	return &maintenance.Waiting{Stage: maintenance.Quarantine, Reason: CheckUnreachable, Event: e}
}

// Reachable is its end.
func Reachable(p Place, u maintenance.Unreachable, now time.Time) *maintenance.Waiting {
	e := provider(p, u.NodeName, u.Since, now)
	e.IsHealthy = true
	e.Message = p.CSP + " is read again"
	e.ID = record.DerivedID(fmt.Sprintf("csp %q reachable again on %q since %d", p.CSP, u.NodeName, u.Since.UnixMicro()))
	return &maintenance.Waiting{Stage: maintenance.Healthy, Reason: CheckUnreachable, Event: e}
}

func provider(p Place, node string, since, now time.Time) record.Event {
	return record.Event{
		Version: 1, Agent: Agent, CheckName: CheckUnreachable, ComponentClass: "CSP", NodeName: node,
		EntitiesImpacted:  []record.Entity{{EntityType: entityProvider, EntityValue: p.CSP}},
		RecommendedAction: record.ActionNone, GeneratedTimestamp: instant(now), ProcessingStrategy: record.PersistOnly,
		Metadata: map[string]string{"since": since.UTC().Format(time.RFC3339)},
	}
}
