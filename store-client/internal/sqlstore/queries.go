package sqlstore

import (
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// NamedQuery is a query that an index was made for.
type NamedQuery struct {
	SQL  string
	Args []any
}

// NamedQueries gives for each index of the schema the services' query that it
// serves, so that a provider's tests can ask its planner; head is its query of the
// head, now a column value, held what a feed has seen while a transaction was under
// way.
func NamedQueries(head string, now any, held *Snapshot) map[string]NamedQuery {
	list := func(q store.Query) NamedQuery {
		sql, args := listSQL(q, q.Limit)
		return NamedQuery{sql, args}
	}
	feed := func(sel record.Selector, seen *Snapshot) NamedQuery {
		f := &feed{Consumer: provider.Consumer[position]{Kind: provider.KindOf(sel)}, selector: sel, cursor: position{Seen: seen}}
		sql, args := f.pollSQL(head)
		return NamedQuery{sql, args}
	}
	return map[string]NamedQuery{
		"health_events_append":     list(store.Query{Limit: 10, After: 5}),
		"health_events_inserts":    feed(record.AllHealthEventInserts(), nil),
		"health_events_changes":    feed(record.QuarantinedAndDrainedNodes(), held),
		"health_events_node":       list(store.Query{Selector: record.Selector{Node: "n"}}),
		"health_events_open":       list(store.Query{Selector: record.OpenOfNode("n")}),
		"health_events_backlog":    list(store.Query{Selector: record.BacklogOfNode("n")}),
		"health_events_recoveries": list(store.Query{Selector: record.Selector{Node: "n", Strategy: record.Process, Healthy: record.Yes()}}),
		"health_events_session":    list(store.Query{Selector: record.Selector{Session: "s"}}),
		"health_events_counter":    list(store.Query{Selector: record.Selector{SeqEpoch: "e"}, Order: store.BySeqDescending, Limit: 1}),
		"health_events_expiry":     {SQL: expireSQL, Args: []any{now, now, now, 10}},

		"maintenance_events_unfinished": {SQL: unfinishedSQL, Args: []any{"aws"}},
		"maintenance_events_expiry":     {SQL: forgetSQL, Args: []any{now, 10}},
	}
}
