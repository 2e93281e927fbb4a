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
func Unreachable(o Origin, node string, since, now time.Time) *maintenance.Waiting {
	e := provider(o, node, since, now)
	e.RecommendedAction = record.ActionContactSupport
	e.Message = fmt.Sprintf("%s cannot be read since %s: maintenance that it announces is not seen", o.CSP, since.UTC().Format(time.RFC3339))
	e.ID = record.DerivedID(fmt.Sprintf("csp %q unreachable on %q since %d", o.CSP, node, since.UnixMicro()))
	return &maintenance.Waiting{Stage: maintenance.Quarantine, Reason: CheckUnreachable, Event: e}
}

// Reachable is its end.
func Reachable(o Origin, u maintenance.Unreachable, now time.Time) *maintenance.Waiting {
	e := provider(o, u.NodeName, u.Since, now)
	e.IsHealthy = true
	e.Message = o.CSP + " is read again"
	e.ID = record.DerivedID(fmt.Sprintf("csp %q reachable again on %q since %d", o.CSP, u.NodeName, u.Since.UnixMicro()))
	return &maintenance.Waiting{Stage: maintenance.Healthy, Reason: CheckUnreachable, Event: e}
}

func provider(o Origin, node string, since, now time.Time) record.Event {
	return record.Event{
		Version: 1, Agent: Agent, CheckName: CheckUnreachable, ComponentClass: "CSP", NodeName: node,
		EntitiesImpacted:  []record.Entity{{EntityType: entityProvider, EntityValue: o.CSP}},
		RecommendedAction: record.ActionNone, GeneratedTimestamp: instant(now), ProcessingStrategy: record.PersistOnly,
		Metadata: map[string]string{"since": since.UTC().Format(time.RFC3339)},
	}
}
