package store

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Appender is a store opened for appending: all that the account of a connector
// may do. Implementations are safe for concurrent use.
type Appender interface {
	// Append is that of Store.
	Append(ctx context.Context, records []record.Record) ([]AppendResult, error)
	// Dead keeps a dead letter; one that is kept already may stay as it is.
	Dead(ctx context.Context, deadLetter DeadLetter) error
	// Ping says whether the store can be reached.
	Ping(ctx context.Context) error
	Close() error
}
