package sink

import (
	"context"
	"fmt"
	"slices"

	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

// rebuild makes an incomplete set whole: the node's history in the store, then
// what the spool holds up to the place that is folded. Nothing was confirmed
// meanwhile, so there is no gap between the two; what is in both is folded
// twice, which changes nothing.
func (f *Fold) rebuild(ctx context.Context, s History) error {
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

func (f *Fold) foldHistory(ctx context.Context, s History, set *conditions.Set) error {
	ctx, cancel := context.WithTimeout(ctx, historyDeadline)
	defer cancel()
	for after := int64(0); ; {
		page, err := s.History(ctx, after)
		if err != nil {
			return fmt.Errorf("reading the node's history from the store: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		for _, r := range page {
			if !slices.Contains(f.Elsewhere, r.Event.Agent) {
				set.FoldStored(r, f.Identity())
			}
			after = r.Append
		}
	}
}
