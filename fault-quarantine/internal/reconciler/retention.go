package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// expireEvery is how often expired records are looked for.
const expireEvery = 10 * time.Minute

// Expiry deletes records whose expireAt has passed, and dead letters beyond their bounds.
// Only expireAt expires a record.
func (rc *Reconciler) Expiry() consume.Task {
	return consume.Task{Name: "retention", Every: expireEvery, Do: func(ctx context.Context) error {
		n, err := rc.Store.Expire(ctx, rc.Clock.Now())
		if err != nil {
			return fmt.Errorf("expiring records: %w", err)
		}
		if n > 0 {
			rc.Log.Info("records expired", "count", n)
		}
		return rc.trimDeadLetters(ctx)
	}}
}

// trimDeadLetters has the oldest dead letters go where there are too many, too large or too
// old ones.
func (rc *Reconciler) trimDeadLetters(ctx context.Context) error {
	var problems []error
	for _, bound := range store.DeadLetterBounds() {
		n, err := rc.Store.TrimDeadLetters(ctx, bound, rc.Clock.Now())
		if n > 0 {
			rc.Log.Warn("dead letters above the limit deleted", "source", bound.Source, "count", n)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
