package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// DeadLetterBound bounds the dead letters of each source of a kind: the newest Count, with
// Bytes in their bodies together, no older than Age. 0 is no bound.
type DeadLetterBound struct {
	// Source is the source, or with Prefix what the names of sources begin with.
	Source string
	Prefix bool
	Count  int
	Bytes  int64
	Age    time.Duration
}

// Connectors is the source of the dead letters of connectors; with "/" and a node's name
// that of the node's.
const Connectors = "platform-connectors"

// NodesUse is the source of what gateways note of nodes' quotas, day by day.
const NodesUse = "what nodes have brought"

// deadLetterAge is how long a dead letter is kept, which is how long a record is.
const deadLetterAge = 30 * 24 * time.Hour

// OfConnectors bounds the dead letters of each node's connector: who is root on the node
// makes as many as it likes.
func OfConnectors() DeadLetterBound {
	return DeadLetterBound{Source: Connectors, Prefix: true, Count: 1000, Bytes: 16 << 20, Age: deadLetterAge}
}

// DeadLetterBounds returns the bounds of all sources whose dead letters expire. Letters about
// how a process ended, or about what a service skips, are kept until somebody removes them.
func DeadLetterBounds() []DeadLetterBound {
	return []DeadLetterBound{
		OfConnectors(),
		{Source: Undecodable, Count: 1000, Bytes: 256 << 20},
		{Source: "feed of ", Prefix: true, Count: 1000, Bytes: 256 << 20},
		{Source: "event-exporter", Age: deadLetterAge},
		{Source: "health-events-analyzer", Age: deadLetterAge},
		{Source: NodesUse, Count: 100, Age: 48 * time.Hour},
	}
}

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
		return nil, fmt.Errorf("reading the usage of nodes: %w", err)
	}
	out = []UseDay{}
	for _, l := range letters {
		d := UseDay{Gateway: l.ID}
		if problem := json.Unmarshal(l.Body, &d); problem != nil {
			err = errors.Join(err, fmt.Errorf("reading the usage of nodes through gateway %s: %w", l.ID, problem))
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
		err = s.Dead(ctx, DeadLetter{ID: d.Gateway, Source: NodesUse, Reason: "daily usage of a gateway, not a dead letter", Body: body, At: now})
	}
	if err != nil {
		return fmt.Errorf("storing the usage of nodes: %w", err)
	}
	return nil
}
