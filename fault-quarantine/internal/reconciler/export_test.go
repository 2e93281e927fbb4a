package reconciler

import (
	"context"
	"encoding/json"
)

// ReportOrphaned looks once for orphaned faults.
var ReportOrphaned = (*Reconciler).reportOrphaned

// SetMaxFullBytes has a reconciler hold so many bytes of open faults whole.
func (rc *Reconciler) SetMaxFullBytes(bytes int) { rc.maxFullBytes = bytes }

// Memory is what a look at a node holds of its open faults, as JSON, and how many of
// them are condensed.
func (rc *Reconciler) Memory(ctx context.Context, name string) (bytes, condensed int, err error) {
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
	return bytes, len(seen.view.Condensed), nil
}
