package reconciler

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// unfinished are the eviction statuses that something may follow.
func unfinished() []record.Eviction {
	return []record.Eviction{record.EvictionUnset, record.EvictionInProgress}
}

// Owed selects the faults in quarantine, or out of it again, whose drain is
// not over; of one node, or of all when node is empty.
func Owed(node string) record.Selector {
	return record.Selector{
		Name: "DrainOwed", Node: node, Healthy: record.No(),
		Quarantined: []record.Quarantine{record.Quarantined, record.AlreadyQuarantined, record.QuarantineCanceled},
		Evictions:   unfinished(),
	}
}

// Outstanding selects the backlog: drains that are owed, or to be kept up, of
// all nodes.
func Outstanding() record.Selector {
	return record.Selector{Name: "DrainBacklog", Any: []record.Selector{Owed(""), drainedUnrepaired()}}
}

// OfNode selects what a decision looks at: what is owed, all open faults, and the
// faults of the session whose drain succeeded.
func OfNode(node, session string) record.Selector {
	s := record.Selector{
		Name: "DrainOfNode", Node: node, Healthy: record.No(),
		Any: []record.Selector{Owed(""), {Open: record.Yes()}},
	}
	if session != "" {
		s.Any = append(s.Any, record.Selector{Session: session, Evictions: []record.Eviction{record.EvictionSucceeded}})
	}
	return s
}

// drainedUnrepaired selects the drained faults that are not repaired.
func drainedUnrepaired() record.Selector {
	return record.Selector{Open: record.Yes(), Evictions: []record.Eviction{record.EvictionSucceeded, record.AlreadyDrained}, Remediated: "null"}
}

// list reads the records that a decision about a node looks at.
func (rc *Reconciler) list(ctx context.Context, seen facts) ([]record.Record, error) {
	records, err := rc.records.List(ctx, store.Query{Selector: OfNode(seen.name, seen.view.Node.Session)})
	if err != nil {
		return nil, fmt.Errorf("listing the records of node %s: %w", seen.name, err)
	}
	for _, r := range records {
		crashpoint.DieOf(r.Event.Message)
	}
	return records, nil
}

// changes are the updates that a step asks for.
func changes(records []record.Record, step decision.Step, now time.Time) []store.Change {
	var out []store.Change
	for _, r := range records {
		if status, ok := step.Updated(r, now); ok {
			out = append(out, store.Change{ID: r.ID, Revision: r.Revision, Status: status, ExpireAt: r.ExpireAt})
		}
	}
	return out
}
