package store

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

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
