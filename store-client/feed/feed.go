// Package feed opens the change feeds of the services that handle records. A service
// opens its feed when it leads, not when it starts: a replica that stood by for days
// would read those days again otherwise.
package feed

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Open opens a feed; see consume.Loop.
type Open = func(ctx context.Context) (consume.Feed[record.Record], error)

// Source is a store's feeds.
type Source interface {
	Begin(ctx context.Context, consumer string, selector record.Selector, since time.Time) (first bool, err error)
	Feed(ctx context.Context, consumer string, selector record.Selector) (store.Feed, error)
}

// Of is the feed of a named consumer; one that is new to the store begins with the first
// record.
func Of(s Source, consumer string, selector record.Selector) Open {
	return func(ctx context.Context) (consume.Feed[record.Record], error) {
		f, err := s.Feed(ctx, consumer, selector)
		if err != nil {
			return nil, fmt.Errorf("opening the feed %s: %w", consumer, err)
		}
		return f, nil
	}
}

// From is Of for a consumer that, if it is new to the store, begins at a time, which is
// asked for when it leads; begins is told so, and may be nil.
func From(s Source, consumer string, selector record.Selector, since func() time.Time, begins func(since time.Time)) Open {
	open := Of(s, consumer, selector)
	return func(ctx context.Context) (consume.Feed[record.Record], error) {
		at := since()
		first, err := s.Begin(ctx, consumer, selector, at)
		if err != nil {
			return nil, fmt.Errorf("beginning the feed %s: %w", consumer, err)
		}
		if first && begins != nil {
			begins(at)
		}
		return open(ctx)
	}
}
