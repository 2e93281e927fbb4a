package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// DayFormat is how a day is named, in UTC.
const DayFormat = time.DateOnly

// UseDay is what nodes have brought through one gateway in one day.
type UseDay struct {
	// Gateway names it, Day the day.
	Gateway string `json:"-"`
	Day     string `json:"day"`
	// Nodes are those that have brought much, or of which something was counted.
	Nodes map[string]NodeUse `json:"nodes"`
}

// NodeUse is what one of them has brought.
type NodeUse struct {
	// Bytes and Records are what was stored.
	Bytes   int64      `json:"bytes"`
	Records int64      `json:"records"`
	Counted CountedUse `json:"counted,omitzero"`
}

// CountedUse is what was counted and not stored.
type CountedUse struct {
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// First and Last are when, by the gateway's clock.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// Add counts records of so many bytes at a time.
func (c CountedUse) Add(records, bytes int64, at time.Time) CountedUse {
	if c.First.IsZero() {
		c.First = at
	}
	return CountedUse{c.Records + records, c.Bytes + bytes, c.First, at}
}

// Plus is what was counted here or there.
func (c CountedUse) Plus(o CountedUse) CountedUse {
	if c.First.IsZero() || !o.First.IsZero() && o.First.Before(c.First) {
		c.First = o.First
	}
	if o.Last.After(c.Last) {
		c.Last = o.Last
	}
	return CountedUse{c.Records + o.Records, c.Bytes + o.Bytes, c.First, c.Last}
}

// UseReader reads letters.
type UseReader interface {
	DeadLetters(ctx context.Context, source string) ([]DeadLetter, error)
}

// UseWriter writes letters.
type UseWriter interface {
	Dead(ctx context.Context, deadLetter DeadLetter) error
}

// ReadUse reads the newest day of each gateway. One that cannot be read is left out and part of
// the error; without any the store was not read.
func ReadUse(ctx context.Context, s UseReader) (out []UseDay, err error) {
	letters, err := s.DeadLetters(ctx, NodesUse)
	if err != nil {
		return nil, fmt.Errorf("reading what nodes have brought: %w", err)
	}
	out = []UseDay{}
	for _, l := range letters {
		d := UseDay{Gateway: l.ID}
		if problem := json.Unmarshal(l.Body, &d); problem != nil {
			err = errors.Join(err, fmt.Errorf("reading what nodes have brought through gateway %s: %w", l.ID, problem))
			continue
		}
		out = append(out, d)
	}
	return out, err
}

// WriteUse replaces the day of a gateway.
func WriteUse(ctx context.Context, s UseWriter, d UseDay, now time.Time) error {
	body, err := json.Marshal(d)
	if err == nil {
		err = s.Dead(ctx, DeadLetter{ID: d.Gateway, Source: NodesUse, Reason: "the day of a gateway, no dead letter", Body: body, At: now})
	}
	if err != nil {
		return fmt.Errorf("keeping what nodes have brought: %w", err)
	}
	return nil
}
