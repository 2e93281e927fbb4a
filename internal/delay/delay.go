// Package delay waits between two tries.
package delay

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// For waits for d, or until ctx ends, and says whether ctx goes on.
func For(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return ctx.Err() == nil
	}
}
