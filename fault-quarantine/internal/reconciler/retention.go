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
func (d *Reconciler) Expiry() consume.Task {
	return consume.Task{Name: "retention", Every: expireEvery, Do: func(ctx context.Context) error {
		n, err := d.Store.Expire(ctx, d.Clock.Now())
		if err != nil {
			return fmt.Errorf("expiring records: %w", err)
		}
		if n > 0 {
			d.Log.Info("records expired", "count", n)
		}
		return d.trimDeadLetters(ctx)
	}}
}

// trimDeadLetters has the oldest dead letters go where there are too many, too large or too
// old ones.
func (d *Reconciler) trimDeadLetters(ctx context.Context) error {
	var problems []error
	for _, bound := range store.DeadLetterBounds() {
		n, err := d.Store.TrimDeadLetters(ctx, bound, d.Clock.Now())
		if n > 0 {
			d.Log.Warn("dead letters beyond their bound are gone", "source", bound.Source, "count", n)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
