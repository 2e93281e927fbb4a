package replay

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// bury keeps a record whose id is stored with other content: it can never be
// stored and must not block what is behind it.
func (c *Carrier) bury(ctx context.Context, s Sink, rec record.Record) error {
	body, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encoding record %s: %w", rec.ID, err)
	}
	letter := store.DeadLetter{
		ID: rec.ID, Source: LettersOf(rec.Event.NodeName), Reason: "its id is stored with other content",
		Body: body, At: c.Clock.Now().UTC(),
	}
	if err := s.Dead(ctx, letter); err != nil {
		return fmt.Errorf("keeping the dead letter of record %s: %w", rec.ID, err)
	}
	c.Log.Error("the id of an event is stored with other content; the event is a dead letter now",
		"id", rec.ID, "agent", rec.Event.Agent, "check", rec.Event.CheckName)
	return nil
}
