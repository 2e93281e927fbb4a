package reconciler

import (
	"context"
	"encoding/json"
)

// ReportStranded looks once for orphaned faults.
var ReportStranded = (*Reconciler).reportStranded

// HoldWhole has a reconciler hold so many bytes of open faults whole.
func (rc *Reconciler) HoldWhole(bytes int) { rc.whole = bytes }

// Holds is what a look at a node holds of its open faults, as JSON, and how many of
// them are in brief.
func (rc *Reconciler) Holds(ctx context.Context, name string) (bytes, brief int, err error) {
	seen, err := rc.observe(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range seen.view.Open {
		b, err := json.Marshal(r)
		if err != nil {
			return 0, 0, err
		}
		bytes += len(b)
	}
	return bytes, len(seen.view.Brief), nil
}
