package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Bounds of what is written together.
const (
	// jointChanges is how many changes an update may have that joins others; those
	// that wait for it are not to wait for a long one.
	jointChanges = 64
	// groupChanges bounds the changes of a group, store.PageBytes the documents that
	// it reads.
	groupChanges = 256
	// groupTime bounds each of a group's two statements: who waits for a connection
	// that neither answers nor breaks takes another one afterwards.
	groupTime = 10 * time.Second
)

// errAlone means that an update was not written with others: it is tried alone.
var errAlone = errors.New("not written together with others")

// errUnknown means that it is unknown whether an update was applied.
var errUnknown = errors.New("the result of the update is unknown")

// fate is how far an update has come, as its caller and its group agree.
type fate = int32

const (
	waits fate = iota
	// left: its caller has been informed that it was not applied.
	left
	// bound: it is in the statement, and its caller waits for the outcome.
	bound
)

// jointUpdate is one Update that joins others.
type jointUpdate struct {
	ctx     context.Context // the caller's own: a fence's Err reads the clock
	writer  record.Writer
	changes []store.Change

	fate  atomic.Int32
	part  int64 // its number in the group
	rows  []row
	after []record.Record
	err   error
	done  chan struct{}
}

// joint has updates wait for each other. The zero value is ready.
type joint struct {
	mu      sync.Mutex
	waiting []*jointUpdate
	busy    bool
}

// join writes an update together with those that come while others are written.
// The error of ctx means that it was not applied and will not be.
func (s *Store) join(ctx context.Context, u *jointUpdate) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	s.joint.mu.Lock()
	s.joint.waiting = append(s.joint.waiting, u)
	lead := !s.joint.busy
	s.joint.busy = true
	s.joint.mu.Unlock()
	if lead {
		go s.writeGroups()
	}
	select {
	case <-u.done:
	case <-ctx.Done():
		if u.fate.CompareAndSwap(waits, left) {
			return ctx.Err()
		}
		<-u.done
	}
	return u.err
}

// writeGroups writes until nobody waits.
func (s *Store) writeGroups() {
	for group := s.joint.next(); len(group) > 0; group = s.joint.next() {
		err := s.protected(group)
		for _, u := range group {
			if err != nil && errors.Is(u.err, errUnknown) {
				u.err = fmt.Errorf("%w: %w", errUnknown, err)
			}
			close(u.done)
		}
		runtime.Gosched() // those who were just answered may come again: a larger group
	}
}

// protected is writeGroup; a panic is an error: a record that makes one does so again
// in its caller's hands alone.
func (s *Store) protected(group []*jointUpdate) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return s.writeGroup(group)
}

// next takes the updates of the next group; none when nobody waits.
func (j *joint) next() (group []*jointUpdate) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for len(j.waiting) > 0 && (n == 0 || n+len(j.waiting[0].changes) <= groupChanges) {
		u := j.waiting[0]
		j.waiting = j.waiting[1:]
		if u.fate.Load() == waits {
			u.err = errAlone // unless decide or bind changes it
			group, n = append(group, u), n+len(u.changes)
		}
	}
	if len(group) == 0 {
		j.waiting, j.busy = nil, false
	}
	return group
}

// writeGroup reads the records of some updates, decides about each by itself, and
// writes them in one statement, which is a transaction: each update whole or not at
// all. It waits for no row that somebody else has locked, so that no record holds
// the others up and nothing deadlocks.
func (s *Store) writeGroup(group []*jointUpdate) error {
	ctx, cancel := context.WithTimeout(context.Background(), groupTime)
	defer cancel()
	// One connection, held before anything is bound: nothing waits for one then.
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()
	found, err := readGroup(ctx, conn, group)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	for i, u := range group {
		u.part = int64(i)
		u.decide(found)
	}
	var rows []row
	for _, u := range group {
		if len(u.rows) > 0 && u.bind() {
			rows = append(rows, u.rows...)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	written, err := s.writeRows(conn, rows)
	for _, r := range rows {
		switch {
		case err == nil && written[r.of.part]:
			r.of.err = nil
		case err == nil, s.Dialect.Joint.Refused(err):
			r.of.err = errAlone
		}
	}
	return err
}

// readGroup reads the documents, up to store.PageBytes together.
func readGroup(ctx context.Context, conn *sql.Conn, group []*jointUpdate) (map[string][]byte, error) {
	var ids []string
	for _, u := range group {
		for _, c := range u.changes {
			ids = append(ids, c.ID)
		}
	}
	found, size := map[string][]byte{}, 0
	err := each(ctx, conn, "SELECT id, doc FROM health_events WHERE id = ANY($1::text[])", []any{ids}, func(scan func(...any) error) error {
		var id string
		var doc []byte
		err := scan(&id, &doc)
		if size += len(doc); size <= store.PageBytes {
			found[id] = doc
		}
		return err
	})
	return found, err
}

// decide sets what the update writes, or what forbids it. An update of a record that was
// not found, cannot be decoded, or belongs to another update of the group stays alone.
func (j *jointUpdate) decide(found map[string][]byte) {
	before := map[string]record.Record{}
	for _, c := range j.changes {
		r, err := decode(found[c.ID])
		if err != nil {
			return
		}
		before[c.ID] = r
	}
	after, err := provider.Apply(j.writer, before, j.changes)
	if err != nil {
		j.err = err
		return
	}
	rows := make([]row, len(after))
	for i, r := range after {
		rows[i] = row{rec: r, of: j}
		if err := rows[i].encode(); err != nil {
			j.err = fmt.Errorf("record %q: %w", r.ID, err)
			return
		}
	}
	for id := range before {
		delete(found, id)
	}
	j.rows, j.after = rows, after
}

// bind puts the update into the statement, unless its caller has gone or may act no
// more.
func (j *jointUpdate) bind() bool {
	if err := j.ctx.Err(); err != nil {
		j.err = err
		return false
	}
	if !j.fate.CompareAndSwap(waits, bound) {
		return false
	}
	j.err = errUnknown // until it is known
	return true
}

// writeRows writes the rows of those updates that are as they were read, and returns which.
func (s *Store) writeRows(conn *sql.Conn, rows []row) (written map[int64]bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTime)
	defer cancel()
	query, args, err := s.jointSQL(rows)
	if err != nil {
		return nil, err
	}
	written = map[int64]bool{}
	err = each(ctx, conn, query, args, func(scan func(...any) error) error {
		var part int64
		var effects any
		err := scan(&part, &effects)
		written[part] = true
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("writing %d records: %w", len(rows), err)
	}
	return written, nil
}

// jointColumns hold to which update a row belongs, how many that has, and who is woken.
var jointColumns = []column{
	{"part", "bigint", func(_ *Dialect, r *row) any { return r.of.part }},
	{"size", "bigint", func(_ *Dialect, r *row) any { return int64(len(r.of.changes)) }},
	{"cause", "text", func(_ *Dialect, r *row) any { return cause(r.of.writer, r.rec).String() }},
}

// jointSQL compares and sets: the rows of an update are written if all of them still
// have the revision that was read and none is locked, and none at all to a newer schema.
// Rows are locked in id order.
func (s *Store) jointSQL(rows []row) (string, []any, error) {
	places, columns := changeColumns[:3], slices.Concat(insertColumns[:1], jointColumns, changeColumns[3:])
	names, sets := make([]string, len(columns)), []string{}
	for i, place := range s.Dialect.Joint.Places {
		sets = append(sets, places[i].name+" = "+place)
	}
	for i, col := range columns {
		names[i] = col.name
		if i > len(jointColumns) {
			sets = append(sets, col.set())
		}
	}
	var c compiler
	_, arrays, err := s.arrays(&c, columns, rows)
	if err != nil {
		return "", nil, err
	}
	return `WITH given AS MATERIALIZED (SELECT * FROM unnest(` + arrays + `) AS given (` + strings.Join(names, ", ") + `)),
fresh AS MATERIALIZED (SELECT part FROM given JOIN health_events AS h USING (id)
  WHERE h.revision = given.revision - 1 ORDER BY id FOR UPDATE OF h SKIP LOCKED),
whole AS (SELECT part, COUNT(*) AS size FROM fresh GROUP BY part)
UPDATE health_events AS h SET ` + strings.Join(sets, ", ") + ` FROM given AS rows JOIN whole USING (part, size)
WHERE h.id = rows.id AND (` + schemaSQL + `) <= ` + c.arg(s.Schema) + `
RETURNING rows.part, ` + s.Dialect.Joint.Effects, c.args, nil
}
