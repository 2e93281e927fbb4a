package desk

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// expireEvery is how often expired records are looked for.
const expireEvery = 10 * time.Minute

// Expire deletes records whose expireAt has passed, now and then, until ctx
// ends. Only expireAt expires a record; deleting twice is harmless, so that
// every replica may do it.
func (d *Desk) Expire(ctx context.Context, c clock.WithTicker) error {
	ticker := c.NewTicker(expireEvery)
	defer ticker.Stop()
	for {
		n, err := d.Store.Expire(ctx, c.Now())
		switch {
		case err != nil && ctx.Err() == nil:
			d.Log.Error("expiring records failed, trying again", "in", expireEvery, "error", err)
		case n > 0:
			d.Log.Info("records expired", "count", n)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
