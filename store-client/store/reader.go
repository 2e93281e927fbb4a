package store

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Consumer is a feed's consumer that has committed at least once.
type Consumer struct {
	Name string
	// Mark is when the last record it committed was stored or changed, by the
	// store's clock; zero when none is known.
	Mark time.Time
	// CommittedAt is when it last committed. A feed without work commits rarely.
	CommittedAt time.Time
}

// Lag is what a consumer has not committed yet.
type Lag struct {
	// Pending counts the records that wait for it, up to the limit asked for.
	Pending int
	// Oldest is when the first of them was stored or changed, by the store's
	// clock; zero when none waits.
	Oldest time.Time
	// Lost is why the stored position says nothing here, or empty. The consumer
	// will begin a rescan, of which Pending counts what can be told already.
	Lost string
}

// Reader is a store opened for looking: its connections cannot write, it
// neither creates nor migrates anything, and no consumer notices it.
// Implementations are safe for concurrent use.
type Reader interface {
	// Get reads one record (ErrNotFound, ErrUndecodable).
	Get(ctx context.Context, id string) (record.Record, error)
	// List is that of Store.
	List(ctx context.Context, q Query) ([]record.Record, error)
	// DeadLetters is that of Store.
	DeadLetters(ctx context.Context, source string) ([]DeadLetter, error)
	// Consumers lists everyone who has a stored position, by name.
	Consumers(ctx context.Context) ([]Consumer, error)
	// Lag says what the named consumer, reading with the selector, has not
	// committed; limit bounds the count (at least 1). A consumer without a stored
	// position has everything before it.
	Lag(ctx context.Context, consumer string, selector record.Selector, limit int) (Lag, error)
	// Ping says whether the store can be reached.
	Ping(ctx context.Context) error
	Close() error
}
