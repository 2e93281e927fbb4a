package sink

import (
	"context"
	"fmt"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// historyPage is how many records one list of the history brings.
const historyPage = 500

// rebuild makes an incomplete set whole: the node's history in the store, then
// what the spool holds up to the place that is folded. Nothing was confirmed
// meanwhile, so there is no gap between the two; what is in both is folded
// twice, which changes nothing.
func (f *Fold) rebuild(ctx context.Context, s store.Store) error {
	set := &conditions.Set{}
	if err := f.foldHistory(ctx, s, set); err != nil {
		return err
	}
	f.work.Lock()
	defer f.work.Unlock()
	now := f.current()
	released, _ := f.Spool.Bounds()
	for at := released; at < now.Index; {
		entries, upTo, err := f.Spool.Read(at, foldBatch)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Index <= now.Index {
				set.Fold(f.changed(ctx, e.Record))
			}
		}
		at = upTo
	}
	set.Notices = now.Set.Notices
	now.Set, now.Complete = set, true
	if err := f.publish(now); err != nil {
		return err
	}
	f.Log.Info("the fault set is rebuilt from the store", "checks", len(set.Checks), "faults", set.Faults())
	return nil
}

// historyOf selects the records of a node that may show in its conditions.
func historyOf(node string) record.Selector {
	return record.Selector{Name: "NodeHistory", Node: node, Strategy: record.Process}
}

func (f *Fold) foldHistory(ctx context.Context, s store.Store, set *conditions.Set) error {
	ctx, cancel := context.WithTimeout(ctx, historyDeadline)
	defer cancel()
	query := store.Query{Selector: historyOf(f.NodeName), Limit: historyPage}
	for {
		page, err := s.List(ctx, query)
		if err != nil {
			return fmt.Errorf("reading the node's history from the store: %w", err)
		}
		for _, r := range page {
			if !slices.Contains(f.Elsewhere, r.Event.Agent) {
				set.FoldStored(r, f.Identity())
			}
			query.After = r.Append
		}
		if len(page) < historyPage {
			return nil
		}
	}
}
