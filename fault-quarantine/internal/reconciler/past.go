package reconciler

import (
	"context"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Past selects the settled records of a node: evaluated recoveries, and faults that
// were quarantined and are no longer open. They prove order and past boots.
func Past(name string) record.Selector {
	settled := []record.Reason{record.Cleared, record.NoOpenFault, record.Matched}
	return record.Selector{Name: "Past", Node: name, Strategy: record.Process, Verdicts: settled, Open: record.No()}
}

// past reads what of the past can change the evaluation, and no more: a node may
// have weeks of recoveries. Only a fault that is not evaluated yet looks back; a
// held one met every recovery when that was evaluated. For each publisher of such a
// fault its newest recovery shows a later boot, and whether any recovery is
// later than the fault; if so, those that clear something of it are read.
func (rc *Reconciler) past(ctx context.Context, seen facts, reads decision.Reads) ([]record.Record, error) {
	if len(reads.Fresh) == 0 {
		return nil, nil
	}
	back := history{reconciler: rc, recoveries: Past(seen.view.Name), fresh: cases(reads.Fresh)}
	back.recoveries.Healthy = record.Yes()
	if err := back.later(ctx); err != nil {
		return nil, err
	}
	if reads.Boots {
		if err := back.boots(ctx, seen.view.Name, seen.view.Open); err != nil {
			return nil, err
		}
	}
	if seen.more {
		// What waits behind this look may have ended already what it would open.
		back.recoveries.Verdicts = []record.Reason{""}
		back.fresh = cases(slices.DeleteFunc(slices.Clone(reads.Fresh), func(r record.Record) bool { return !seen.acts(r) }))
		if err := back.scan(ctx, back.recoveries, latest(pendingOf(seen.view.Pending))); err != nil {
			return nil, err
		}
	}
	return back.found, nil
}

// acts reports whether the rules, or the event itself, ask for a quarantine.
func (f facts) acts(r record.Record) bool {
	o := r.Event.QuarantineOverrides
	return o != nil && o.Force || f.policy.Match(r.Event).Matched()
}

func pendingOf(pending []record.Record) (out []record.Record) {
	for _, r := range pending {
		if !r.Evaluated() {
			out = append(out, r)
		}
	}
	return out
}

func latest(records []record.Record) (at int64) {
	for _, r := range records {
		at = max(at, r.Append)
	}
	return at
}

// history gathers the part of the past that counts.
type history struct {
	reconciler *Reconciler
	recoveries record.Selector
	fresh      []open
	found      []record.Record
}

// open is a fault that is looked back for, and what no recovery was found for.
type open struct {
	record.Record
	entries []fault.Entry
}

func cases(faults []record.Record) (out []open) {
	for _, r := range faults {
		out = append(out, open{r, fault.Entries(r.Event)})
	}
	return out
}

// publisher is who counts its events in one order.
type publisher struct{ agent, epoch string }

// later reads the recoveries that are later than a fault: in the store, or in
// its publisher's order.
func (h *history) later(ctx context.Context) error {
	newest, err := h.newest(ctx, h.recoveries, store.ByAppendDescending)
	if err != nil || newest == nil {
		return err
	}
	h.found = append(h.found, *newest)
	oldest, counted := newest.Append, map[publisher][]record.Record{}
	for _, f := range h.fresh {
		oldest = min(oldest, f.Append)
		if p := (publisher{f.Event.Agent, f.SeqEpoch}); p.epoch != "" {
			counted[p] = append(counted[p], f.Record)
		}
	}
	for p, faults := range counted {
		own := h.recoveries
		own.Agent, own.SeqEpoch = p.agent, p.epoch
		last, err := h.newest(ctx, own, store.BySeqDescending)
		if err != nil {
			return err
		}
		if last == nil {
			continue
		}
		h.found = append(h.found, *last)
		if slices.ContainsFunc(faults, func(f record.Record) bool { return fault.Follows(f, *last) }) {
			if err := h.scan(ctx, own, 0); err != nil {
				return err
			}
		}
	}
	if oldest < newest.Append {
		return h.scan(ctx, h.recoveries, oldest)
	}
	return nil
}

// newest reads one record; nil if there is none.
func (h *history) newest(ctx context.Context, s record.Selector, order store.Order) (*record.Record, error) {
	list, err := h.reconciler.Store.List(ctx, store.Query{Selector: s, Order: order, Limit: 1})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// scan reads page by page what was appended after a record and keeps what
// clears an entry that nothing found so far clears.
func (h *history) scan(ctx context.Context, s record.Selector, after int64) error {
	if len(h.fresh) == 0 {
		return nil
	}
	return h.reconciler.pagesAfter(ctx, s, after, func(page []record.Record) error {
		for _, r := range page {
			if h.clears(r) {
				h.found = append(h.found, r)
			}
		}
		return nil
	})
}

func (h *history) clears(recovery record.Record) bool {
	any := false
	for i := range h.fresh {
		f := &h.fresh[i]
		if !fault.Before(f.Record, recovery) {
			continue
		}
		f.entries = slices.DeleteFunc(f.entries, func(e fault.Entry) bool {
			cleared := fault.Clears(recovery.Event, f.Event, e)
			any = any || cleared
			return cleared
		})
	}
	return any
}

// boots reads what else proves that a boot is over: repairs, and what the Node
// reported during the sessions of its open records.
func (h *history) boots(ctx context.Context, name string, open []record.Record) error {
	kinds := []record.Selector{{Repaired: record.Yes()}}
	known := map[string]bool{}
	for _, r := range open {
		if s := r.Status.Session; s != "" && !known[s] {
			known[s] = true
			kinds = append(kinds, record.Selector{Session: s})
		}
	}
	s := Past(name)
	s.Any = kinds
	return h.reconciler.pages(ctx, s, func(page []record.Record) error {
		for _, r := range page {
			if provesNewBoot(r, known) {
				h.found = append(h.found, r)
			}
		}
		return nil
	})
}

// provesNewBoot reports whether a record names a boot that none before it named.
func provesNewBoot(r record.Record, known map[string]bool) bool {
	var boots []string
	if v := r.Status.QuarantineVerdict; v != nil && v.NodeBootID != "" {
		boots = append(boots, "reported "+r.Status.Session+" "+v.NodeBootID)
	}
	if rem := r.Status.Remediation; rem != nil {
		for _, a := range rem.Attempts {
			boots = append(boots, "replaced "+a.ReplacedBootID)
		}
	}
	news := false
	for _, boot := range boots {
		news = news || !known[boot]
		known[boot] = true
	}
	return news
}
