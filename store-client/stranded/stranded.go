// Package stranded finds open faults whose publisher has been switched to
// PERSIST_ONLY since it reported them: a recovery that it reports as
// PERSIST_ONLY too lifts nothing, so that they may stay open for good.
package stranded

import (
	"context"
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Lister lists records.
type Lister interface {
	List(ctx context.Context, q store.Query) ([]record.Record, error)
}

// Fault is an open fault and the newest event of its publisher about the same
// check of the same node, which is PERSIST_ONLY.
type Fault struct {
	Open, Newest record.Record
}

// within bounds how many of an agent's newest events on a node are looked
// through; a check that none of them is about counts as not switched.
const within = 500

// Of finds the stranded among the open faults; newest are later events of their
// publishers, the newest first. An agent is told apart by check, because one
// policy or check may be switched and another not. Repeats that the connector
// demoted are not what the publisher said.
func Of(open, newest []record.Record) []Fault {
	type publisher struct{ node, agent, check string }
	of := func(r record.Record) publisher {
		return publisher{r.Event.NodeName, r.Event.Agent, r.Event.CheckName}
	}
	last := map[publisher]record.Record{}
	for _, r := range newest {
		if _, known := last[of(r)]; !known && r.Event.Metadata[record.MetadataRepeatOf] == "" {
			last[of(r)] = r
		}
	}
	var out []Fault
	for _, r := range record.Acting(open) {
		if now, known := last[of(r)]; known && !now.Acts() && now.Append > r.Append {
			out = append(out, Fault{Open: r, Newest: now})
		}
	}
	return out
}

// Find reads what the publishers of open faults said last, with one query for
// each agent and node, and finds the stranded among them.
func Find(ctx context.Context, records Lister, open []record.Record) ([]Fault, error) {
	type publisher struct{ node, agent string }
	asked := map[publisher]bool{}
	var newest []record.Record
	for _, r := range open {
		p := publisher{r.Event.NodeName, r.Event.Agent}
		if asked[p] {
			continue
		}
		asked[p] = true
		page, err := records.List(ctx, store.Query{
			Selector: record.Selector{Name: "Newest of an agent", Node: p.node, Agent: p.agent},
			Order:    store.ByAppendDescending, Limit: within,
		})
		if err != nil {
			return nil, fmt.Errorf("reading the newest records of %s on node %s: %w", p.agent, p.node, err)
		}
		newest = append(newest, page...)
	}
	return Of(open, newest), nil
}
