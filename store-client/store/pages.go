package store

import (
	"context"
	"errors"

	"github.com/nvidia/nvsentinel/data-models/record"
)

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
