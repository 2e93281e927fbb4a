// Package store is the port to the stored health event records: small typed
// operations with one meaning, implemented by the providers beside it and
// proven by one conformance suite.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// ErrNotFound means the store is sure that no such record exists.
var ErrNotFound = errors.New("record not found")

// ErrUndecodable means that what is stored under the id is no record that this
// version can read. Lists and feeds leave it out and keep it as a dead letter.
var ErrUndecodable = errors.New("the stored document cannot be decoded")

// Undecodable is the source of the dead letters of documents that lists left out;
// their ids are those of the records.
const Undecodable = "records that cannot be decoded"

// ErrConflict means another writer was faster: read the facts again, decide
// again. No change of the batch was applied.
var ErrConflict = errors.New("record has another revision")

// ErrNewer means that only a newer program may change a record (see record.NeedsNewer),
// or anything in the store, whose schema is a newer one. Nothing was applied; it is not
// tried again with success before this program is newer.
var ErrNewer = errors.New("a newer version is required to change it")

// ErrMoved means that the store is another server than the one it was asked to be:
// nothing was applied.
var ErrMoved = errors.New("the store was replaced by another server")

// AppendResult is the result of appending one record.
type AppendResult int

// Results of an append.
const (
	// Appended: stored now.
	Appended AppendResult = iota
	// Duplicate: the same id with the same content was stored before.
	Duplicate
	// Refused: the same id is stored with other content, or no store could give
	// the record back unchanged (no id, U+0000, invalid UTF-8, a year outside
	// 0..9999); nothing of it was written.
	Refused
	// Counted: not stored, because what stands before the store counts it. No store
	// answers it.
	Counted
)

// String names the result.
func (a AppendResult) String() string {
	switch a {
	case Appended:
		return "appended"
	case Duplicate:
		return "duplicate"
	case Refused:
		return "refused"
	case Counted:
		return "counted"
	}
	return fmt.Sprintf("AppendResult(%d)", int(a))
}

// Order of a list.
type Order int

// Orders.
const (
	// ByAppend lists in the store's append order, oldest first.
	ByAppend Order = iota
	// BySeqDescending lists by the publisher's counter, highest first.
	BySeqDescending
	// ByAppendDescending lists in the store's append order, newest first.
	ByAppendDescending
)

// Query selects records for a list.
type Query struct {
	Selector record.Selector
	Order    Order
	// After is the Append of the last record of the page before: ByAppend skips
	// what is not greater, ByAppendDescending what is not smaller; 0 skips nothing.
	After int64
	// Except are ids of records that are left out, as if they were not stored.
	Except []string
	// Limit bounds the page; 0 is no bound.
	Limit int
	// More, if it is given, is set to whether more records may follow the page.
	// Then the page also ends with the record that brings its documents to
	// PageBytes, however few they are: its length does not show the end. See Pages.
	More *bool
}

// PageBytes bounds the documents of a page in bytes; a page has one record at
// least. It bounds the dead letters that one call reads, too.
const PageBytes = 8 << 20

// Change is one compare-and-set: it applies only if the stored revision is
// Revision. The whole status is given; the store refuses changed fields that
// are not the writer's. A nil ExpireAt keeps the stored one; only
// fault-quarantine may set another.
type Change struct {
	ID       string
	Revision int64
	Status   record.Status
	ExpireAt *time.Time
}

// DeadLetter is something that could not be processed, kept for a person.
type DeadLetter struct {
	ID     string
	Source string
	Reason string
	Body   []byte
	At     time.Time
}

// MaxDeadLetters bounds the dead letters that one call reads.
const MaxDeadLetters = 1000

// Finder finds records by id.
type Finder interface {
	Get(ctx context.Context, id string) (record.Record, error)
}

// FindOf reads the record of a node that is known by an id: the stored one of that id,
// or of its alias, if it is about the node. A record of another node does not count, whatever
// its id: then the result is ErrNotFound.
func FindOf(ctx context.Context, records Finder, node, id string) (record.Record, error) {
	r, err := records.Get(ctx, id)
	if err == nil && r.Event.NodeName == node || err != nil && !errors.Is(err, ErrNotFound) {
		return r, err
	}
	r, err = records.Get(ctx, record.Alias(node, id))
	if err == nil && r.Event.NodeName != node {
		return record.Record{}, fmt.Errorf("record %q of node %q: %w", id, node, ErrNotFound)
	}
	return r, err
}

// Store is a durable set of records with compare-and-set updates and
// resumable change feeds. Every write is durable when the call returns.
// Implementations are safe for concurrent use.
type Store interface {
	// Append stores records in order, idempotently by node and id. The results are per
	// record; an error means that any of them may be stored or not: append them
	// again. Only the SQL stores append in one transaction.
	// A record whose id one of another node has is stored under its Alias; FindOf
	// finds it.
	// The store sets Append and Revision; a record with a status is an error
	// (record.ErrNotOwner), because a status is not the appender's.
	Append(ctx context.Context, records []record.Record) ([]AppendResult, error)
	// Get reads one record (ErrNotFound, ErrUndecodable).
	Get(ctx context.Context, id string) (record.Record, error)
	// List reads the records of a query. A document that cannot be decoded is left
	// out, as if it were not stored: who may append could have made it.
	List(ctx context.Context, q Query) ([]record.Record, error)
	// Update applies a batch of compare-and-sets as writer, all or nothing, and
	// returns the records as they are written, in the order of the changes:
	// ErrConflict, ErrNotFound, ErrNewer, or the joined errors of record.CheckWrite.
	// What a record has that this version does not know stays as it is.
	Update(ctx context.Context, writer record.Writer, changes []Change) ([]record.Record, error)
	// Feed opens the named consumer's change feed at its stored position. With
	// InsertsOnly each record comes once; otherwise a record comes again after
	// each change (several changes may come as one), with its latest content.
	// Nothing is skipped: a consumer's first feed starts at the beginning; a lost
	// position delivers what was stored or changed since the low-water mark (the
	// store's time of the last committed record, less a margin) and what is not
	// finished; with the mark lost too, every record that is not finished.
	Feed(ctx context.Context, consumer string, selector record.Selector) (Feed, error)
	// Begin sets where the first feed of a consumer that has no position begins:
	// of what is stored already it will get what was stored or changed since, give
	// or take some minutes more, and what is not finished. A consumer that has a
	// position keeps it, and first is false.
	Begin(ctx context.Context, consumer string, selector record.Selector, since time.Time) (first bool, err error)
	// Dead keeps a dead letter; the same source and id again replace the first.
	Dead(ctx context.Context, deadLetter DeadLetter) error
	// DeadLetters reads the dead letters of a source, the newest first: at most
	// MaxDeadLetters, and none after the one that brings their bodies to PageBytes.
	DeadLetters(ctx context.Context, source string) ([]DeadLetter, error)
	// TrimDeadLetters deletes dead letters beyond a bound, of each source the oldest
	// first, and returns how many.
	TrimDeadLetters(ctx context.Context, bound DeadLetterBound, now time.Time) (int, error)
	// Expire deletes records whose expireAt is before now and returns how many.
	// One that a consumer has not come to yet, by the time of what each committed
	// last, is left for at most ExpireGrace longer.
	Expire(ctx context.Context, now time.Time) (int, error)
	// Ping reports whether the store can be reached.
	Ping(ctx context.Context) error
	Close() error
}

// ExpireGrace is how long an expired record waits for a consumer that is behind.
// One that was taken out of service for good must not keep everything for ever.
const ExpireGrace = 30 * 24 * time.Hour

// Identified is a store that can identify its server.
type Identified interface {
	// Server names the history that writes go to now. It is another one when
	// another server took over, an older state was restored, or the records were
	// emptied or replaced: then what was acknowledged before may be gone.
	Server(ctx context.Context) (string, error)
	// AppendTo is Append while the store is the named server; empty is any. now is
	// the one that it is: that of the records, or with ErrMoved another one.
	AppendTo(ctx context.Context, server string, records []record.Record) (results []AppendResult, now string, err error)
}

// Feed is a resumable stream of records. Next is for one goroutine, Commit may
// be called from others. After an error the feed may be used again. A record may
// come twice, and within one feed never in a state older than before, unless the
// store itself went back; a feed opened behind a position may bear states that
// the one before was past.
type Feed interface {
	// Next blocks for the next record and returns it with its position.
	Next(ctx context.Context) (record.Record, string, error)
	// Commit stores the position; a later feed of the consumer resumes after it.
	// It never goes backwards: an older position changes nothing.
	Commit(ctx context.Context, position string) error
	Close() error
}

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
	// Ping reports whether the store can be reached.
	Ping(ctx context.Context) error
	Close() error
}
