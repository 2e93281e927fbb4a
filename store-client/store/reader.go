package store

import (
	"context"
	"errors"
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
	// Lost is why the stored position is not valid here, or empty. The consumer will begin a
	// rescan, of which Pending counts what is already known.
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
	// Lag returns what the named consumer, reading with the selector, has not committed; limit
	// bounds the count (at least 1). A consumer without a stored position has everything before
	// it.
	Lag(ctx context.Context, consumer string, selector record.Selector, limit int) (Lag, error)
	// Ping reports whether the store can be reached.
	Ping(ctx context.Context) error
	Close() error
}

// Acting is a store as a service that acts sees it: whatever its lists and feeds ask
// for, PERSIST_ONLY records are not there. Get is that of the store: who has an id
// has met the record before.
func Acting(s Store) Store { return acting{s} }

type acting struct{ Store }

// List implements Store.
func (a acting) List(ctx context.Context, q Query) ([]record.Record, error) {
	q.Selector = ofProcess(q.Selector)
	return a.Store.List(ctx, q)
}

// Feed implements Store.
func (a acting) Feed(ctx context.Context, consumer string, s record.Selector) (Feed, error) {
	return a.Store.Feed(ctx, consumer, ofProcess(s))
}

// Begin implements Store.
func (a acting) Begin(ctx context.Context, consumer string, s record.Selector, since time.Time) (bool, error) {
	return a.Store.Begin(ctx, consumer, ofProcess(s), since)
}

// ofProcess is the selector and PROCESS.
func ofProcess(s record.Selector) record.Selector {
	if s.Strategy == "" {
		s.Strategy = record.Process
	}
	if s.Strategy != record.Process {
		return record.Selector{Name: s.Name, InsertsOnly: s.InsertsOnly, Strategy: record.Process, Any: []record.Selector{s}}
	}
	return s
}

// Enough ends Pages early, without an error.
var Enough = errors.New("no more pages are wanted") //nolint:errname,staticcheck // a word, not a failure

// PageRecords bounds the records of a page that names no bound.
const PageRecords = 500

// Lister lists records.
type Lister interface {
	List(ctx context.Context, q Query) ([]record.Record, error)
}

// Pages reads a query in append order, ascending or descending, from q.After on
// and calls visit with every page that is not empty. Pages are bounded by
// q.Limit, of which 0 is PageRecords, and by PageBytes. It ends with the last page,
// with an error, or when visit returns Enough.
func Pages(ctx context.Context, records Lister, q Query, visit func(page []record.Record) error) error {
	if q.Order == BySeqDescending {
		return errors.New("pages need an append order")
	}
	if q.Limit <= 0 {
		q.Limit = PageRecords
	}
	for more := true; more; {
		more = false
		q.More = &more
		page, err := records.List(ctx, q)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		if err := visit(page); err != nil {
			if errors.Is(err, Enough) {
				return nil
			}
			return err
		}
		q.After = page[len(page)-1].Append
	}
	return nil
}

// Each is Pages, record by record.
func Each(ctx context.Context, records Lister, q Query, visit func(record.Record) error) error {
	return Pages(ctx, records, q, func(page []record.Record) error {
		for _, r := range page {
			if err := visit(r); err != nil {
				return err
			}
		}
		return nil
	})
}
