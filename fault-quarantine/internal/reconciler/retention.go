package reconciler

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/consume"
)

// expireEvery is how often expired records are looked for.
const expireEvery = 10 * time.Minute

// Expiry deletes records whose expireAt has passed. Only expireAt expires a record.
func (d *Reconciler) Expiry() consume.Task {
	return consume.Task{Name: "retention", Every: expireEvery, Do: func(ctx context.Context) error {
		n, err := d.Store.Expire(ctx, d.Clock.Now())
		if err != nil {
			return fmt.Errorf("expiring records: %w", err)
		}
		if n > 0 {
			d.Log.Info("records expired", "count", n)
		}
		return nil
	}}
}
