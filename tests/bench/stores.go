package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const (
	// batch is how many records a large append has, batchEvery how rarely one
	// is measured.
	batch, batchEvery = 100, 10
	// mongoQueries bounds how often the slow stand-in is measured.
	mongoQueries = 20
)

// times are the medians of one history.
type times struct{ one, hundred, feed, swap, open, node time.Duration }

// storeRows are a store's figures over a history of so many records, and over
// none.
func storeRows(o Options, name string, size int, got [2]times) []Row {
	row := func(figure string, of func(times) time.Duration) Row {
		return Row{
			Figure: "store " + name + ": " + figure, Measured: seconds(of(got[0])), Baseline: seconds(of(got[1])), Target: Target{Within: flat},
			Note: fmt.Sprintf("p50 of %d; ours: %d records of history, floor: 0", o.Sizes.Queries, size),
		}
	}
	return []Row{
		row("append one record", func(t times) time.Duration { return t.one }),
		row("append 100 records", func(t times) time.Duration { return t.hundred }),
		row("append to feed", func(t times) time.Duration { return t.feed }),
		row("compare-and-set", func(t times) time.Duration { return t.swap }),
		row("open work of all nodes", func(t times) time.Duration { return t.open }),
	}
}

// measureBatch appends a batch, takes it from the feed and finishes it.
func (h *chronicle) measureBatch(ctx context.Context) error {
	records, changes := h.faults(batch)
	began := time.Now()
	_, err := h.store.Append(ctx, records)
	h.hundred = append(h.hundred, time.Since(began))
	if err != nil {
		return err
	}
	for i := range records {
		_, position, err := h.feed.Next(ctx)
		if err == nil && i == len(records)-1 {
			err = h.feed.Commit(ctx, position)
		}
		if err != nil {
			return err
		}
	}
	_, err = h.store.Update(ctx, record.FaultQuarantine, changes)
	return err
}

// faults are n more faults, and what finishes them.
func (h *chronicle) faults(n int) (records []record.Record, changes []store.Change) {
	for range n {
		r := h.fault()
		records, changes = append(records, r), append(changes, verdict(r, record.NoRuleMatched))
	}
	return records, changes
}

// mongoStore measures the stand-in for MongoDB, without a target: its speed shows little about
// that of MongoDB. Without a stand-in there are no figures.
func mongoStore(ctx context.Context, o Options, dir string) (rows []Row, err error) {
	server, err := mongotest.Start(ctx, mongotest.Options{Dir: dir})
	if errors.Is(err, mongotest.ErrNone) {
		o.log("mongodb is not measured: %v", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	o.Sizes.Queries = min(o.Sizes.Queries, mongoQueries)
	got, err := chronicles(ctx, o, "mongodb", []int{o.Sizes.MongoDB, 0}, func(name string) (cloner, error) {
		return mongoDatabase(server.DSN(name)), nil
	})
	if err != nil {
		return nil, err
	}
	rows = storeRows(o, "mongodb", o.Sizes.MongoDB, [2]times{got[0], got[1]})
	for i := range rows {
		rows[i].Target = Target{}
	}
	return rows, nil
}

// mongoDatabase is the address of a database whose history the store itself
// makes.
type mongoDatabase string

func (d mongoDatabase) dsn() string { return string(d) }

func (d mongoDatabase) close(context.Context) error { return nil }

func (d mongoDatabase) clone(ctx context.Context, _ string, n int) (err error) {
	s, err := storeopen.Open(ctx, d.dsn(), storeopen.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	h := &chronicle{pen: newPen()}
	for left := n; left > 0; left -= batch {
		records, changes := h.faults(min(batch, left))
		if _, err := s.Append(ctx, records); err != nil {
			return err
		}
		if _, err := s.Update(ctx, record.FaultQuarantine, changes); err != nil {
			return err
		}
	}
	return nil
}
