package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
)

// MaintenanceUpdate is what one step changes: documents of maintenances, and that of
// the provider. Each replaces the stored one of its Revision; 0 is one that is not
// stored.
type MaintenanceUpdate struct {
	// CSP is the provider of everything in it.
	CSP    string
	Events []maintenance.Event
	// Provider is the provider's own document with its checkpoint; nil leaves it.
	Provider *maintenance.Provider
}

// MaxMaintenances bounds the documents of one update.
const MaxMaintenances = 20000

// UndecodableError names the stored documents that were left out because this version
// cannot read them. It is an ErrUndecodable; what came with it can be used.
type UndecodableError struct{ IDs []string }

// Error names them.
func (u *UndecodableError) Error() string {
	const named = 5
	more := ""
	if len(u.IDs) > named {
		more = fmt.Sprintf(" and %d more", len(u.IDs)-named)
	}
	return fmt.Sprintf("%v: %s%s", ErrUndecodable, strings.Join(u.IDs[:min(named, len(u.IDs))], ", "), more)
}

// Unwrap makes it an ErrUndecodable.
func (u *UndecodableError) Unwrap() error { return ErrUndecodable }

// Maintenances keeps what cloud providers announce. Every write is durable when the
// call returns. Implementations are safe for concurrent use.
type Maintenances interface {
	// SaveMaintenances writes the documents, each with the next Revision, all or nothing:
	// ErrConflict if one of them has another revision than was read. After another
	// error it is not known whether it was applied: read again.
	SaveMaintenances(ctx context.Context, u MaintenanceUpdate) error
	// Unfinished lists the provider's maintenances that are not Finished, by EventID.
	// With an UndecodableError the list holds the others.
	Unfinished(ctx context.Context, csp string) ([]maintenance.Event, error)
	// Maintenances reads those of the given ids that are stored, by EventID. With an
	// UndecodableError the list holds the others.
	Maintenances(ctx context.Context, csp string, ids []string) ([]maintenance.Event, error)
	// Provider reads the provider's document (ErrNotFound, ErrUndecodable).
	Provider(ctx context.Context, csp string) (maintenance.Provider, error)
	// Forget deletes finished maintenances whose ExpireAt is before now and returns how
	// many.
	Forget(ctx context.Context, now time.Time) (int, error)
	// Ping says whether the store can be reached.
	Ping(ctx context.Context) error
	Close() error
}
