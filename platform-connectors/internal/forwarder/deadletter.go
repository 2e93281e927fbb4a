package forwarder

import (
	"context"
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
	places "github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// refusal is a record that can never be stored, and why.
type refusal struct {
	record  record.Record
	problem string
}

// bury keeps a record that was refused for good: it must not block what is behind
// it.
func (c *Sender) bury(ctx context.Context, s Sink, r refusal) error {
	rec := r.record
	body, err := record.AppendJSON(nil, rec)
	if err != nil {
		return fmt.Errorf("encoding record %s: %w", rec.ID, err)
	}
	deadLetter := store.DeadLetter{
		ID: rec.ID, Source: DeadLettersOf(rec.Event.NodeName), Reason: r.problem,
		Body: body, At: c.Clock.Now().UTC(),
	}
	ctx = places.ListenDropped(ctx, func(n int) { c.Notices.Add(DeadLettersDropped, n) })
	if err := s.Dead(ctx, deadLetter); err != nil {
		return fmt.Errorf("keeping the dead letter of record %s: %w", rec.ID, err)
	}
	c.Log.Error("an event was refused for good; the event is a dead letter now",
		"id", rec.ID, "agent", rec.Event.Agent, "check", rec.Event.CheckName, "problem", r.problem)
	return nil
}
