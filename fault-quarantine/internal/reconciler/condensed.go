package reconciler

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// open reads the open records page by page, the first of them whole, and the others
// condensed.
func (rc *Reconciler) open(ctx context.Context, s record.Selector, recoveries []record.Record) (out []record.Record, condensed map[string]bool, err error) {
	held, most := 0, cmp.Or(rc.maxFullBytes, maxFullBytes)
	condensed = map[string]bool{}
	err = rc.pages(ctx, s, func(page []record.Record) error {
		for _, r := range page {
			if held += weight(r); held > most {
				r, condensed[r.ID] = decision.Condense(r, recoveries), true
			}
			out = append(out, r)
		}
		return nil
	})
	return out, condensed, err
}

// weight is about what a record takes in memory, in bytes.
func weight(r record.Record) int {
	n := 1024 + len(r.Event.Message)
	for _, e := range r.Event.EntitiesImpacted {
		n += 32 + len(e.EntityType) + len(e.EntityValue)
	}
	for _, c := range r.Event.ErrorCode {
		n += 16 + len(c)
	}
	for k, v := range r.Event.Metadata {
		n += 64 + len(k) + len(v)
	}
	for _, f := range r.Status.Faults {
		n += 48 + len(f.Key) + len(f.ClearedBy)
	}
	return n
}

// readFull reads the whole record of a condensed one, as it was then.
func (rc *Reconciler) readFull(ctx context.Context, condensed record.Record) (record.Record, error) {
	full, err := rc.Store.Get(ctx, condensed.ID)
	if err != nil {
		return full, fmt.Errorf("reading the complete record of open fault %s of node %s: %w", condensed.ID, condensed.Event.NodeName, err)
	}
	if full.Revision != condensed.Revision {
		return full, retry.Wait(0, "another writer changed a record of the node")
	}
	return full, nil
}

// batchOf is how many records of an evaluation are written in one transaction.
func batchOf(j decision.Evaluation) int {
	if len(j.Condensed) > 0 {
		return condensedBatch
	}
	return maxBatch
}
