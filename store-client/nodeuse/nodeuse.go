// Package nodeuse keeps in the store what each node has brought through each gateway in a
// day, so that a node's quota outlives a gateway and holds over several, and so that
// everybody can see what was counted instead of stored.
package nodeuse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/store-client/store"
)

// Source is that of the letters that hold the days. They are no dead letters but the only
// thing beside the records that every store keeps.
const Source = store.NodesUse

// Format is how a day is named, in UTC.
const Format = time.DateOnly

// Day is what nodes have brought through one gateway in one day.
type Day struct {
	// Gateway names it, Day the day.
	Gateway string `json:"-"`
	Day     string `json:"day"`
	// Nodes are those that have brought much, or of which something was counted.
	Nodes map[string]Node `json:"nodes"`
}

// Node is what one of them has brought.
type Node struct {
	// Bytes and Records are what was stored.
	Bytes   int64   `json:"bytes"`
	Records int64   `json:"records"`
	Counted Counted `json:"counted,omitzero"`
}

// Counted is what was counted and not stored.
type Counted struct {
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// First and Last are when, by the gateway's clock.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// Add counts records of so many bytes at a time.
func (c Counted) Add(records, bytes int64, at time.Time) Counted {
	if c.First.IsZero() {
		c.First = at
	}
	return Counted{c.Records + records, c.Bytes + bytes, c.First, at}
}

// Plus is what was counted here or there.
func (c Counted) Plus(o Counted) Counted {
	if c.First.IsZero() || !o.First.IsZero() && o.First.Before(c.First) {
		c.First = o.First
	}
	if o.Last.After(c.Last) {
		c.Last = o.Last
	}
	return Counted{c.Records + o.Records, c.Bytes + o.Bytes, c.First, c.Last}
}

// Reader reads letters.
type Reader interface {
	DeadLetters(ctx context.Context, source string) ([]store.DeadLetter, error)
}

// Writer writes letters.
type Writer interface {
	Dead(ctx context.Context, deadLetter store.DeadLetter) error
}

// Read reads the newest day of each gateway. One that cannot be read is left out and part of
// the error; without any the store was not read.
func Read(ctx context.Context, s Reader) (out []Day, err error) {
	letters, err := s.DeadLetters(ctx, Source)
	if err != nil {
		return nil, fmt.Errorf("reading what nodes have brought: %w", err)
	}
	out = []Day{}
	for _, l := range letters {
		d := Day{Gateway: l.ID}
		if problem := json.Unmarshal(l.Body, &d); problem != nil {
			err = errors.Join(err, fmt.Errorf("reading what nodes have brought through gateway %s: %w", l.ID, problem))
			continue
		}
		out = append(out, d)
	}
	return out, err
}

// Write replaces the day of a gateway.
func Write(ctx context.Context, s Writer, d Day, now time.Time) error {
	body, err := json.Marshal(d)
	if err == nil {
		err = s.Dead(ctx, store.DeadLetter{ID: d.Gateway, Source: Source, Reason: "the day of a gateway, no dead letter", Body: body, At: now})
	}
	if err != nil {
		return fmt.Errorf("keeping what nodes have brought: %w", err)
	}
	return nil
}
