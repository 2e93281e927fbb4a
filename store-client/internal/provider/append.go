package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Append is store.Store's Append for every provider: insert stores records of different
// ids, sets their Append and Revision, and returns what is stored under each id now. A
// status is not the appender's to give.
func Append(ctx context.Context, m *Metrics, records []record.Record,
	insert func(context.Context, []record.Record) (map[string]Content, error),
) ([]store.AppendResult, error) {
	results := make([]store.AppendResult, len(records))
	first := map[string]int{}
	var fresh, others []record.Record
	var later []int // records of another node than the first of their id
	for i, r := range records {
		if err := record.CheckWrite(record.Connector, record.Status{}, r.Status); err != nil {
			return nil, fmt.Errorf("appending record %q: %w", r.ID, err)
		}
		if Storable(r) != nil {
			results[i] = store.Refused
		} else if at, again := first[r.ID]; !again {
			first[r.ID] = i
			fresh = append(fresh, r)
		} else if records[at].Event.NodeName != r.Event.NodeName {
			later, others = append(later, i), append(others, r)
		}
	}
	stored, err := insert(ctx, fresh)
	if err == nil {
		err = insertAliases(ctx, fresh, stored, insert)
	}
	if err != nil {
		return nil, fmt.Errorf("appending %d records: %w", len(records), err)
	}
	for i, r := range records {
		if slices.Contains(later, i) {
			continue
		}
		if f, ok := first[r.ID]; ok && results[i] != store.Refused {
			results[i] = appendResult(stored[r.ID], r, f == i)
		}
		m.Appends.WithLabelValues(results[i].String()).Inc()
	}
	if len(others) == 0 {
		return results, nil
	}
	rest, err := Append(ctx, m, others, insert)
	for i, at := range later {
		if err == nil {
			results[at] = rest[i]
		}
	}
	return results, err
}

// insertAliases inserts the records whose ids records of other nodes have, under their
// aliases, and notes what became of them under the ids that they came with.
func insertAliases(ctx context.Context, fresh []record.Record, stored map[string]Content,
	insert func(context.Context, []record.Record) (map[string]Content, error),
) error {
	var aliases []record.Record
	original := map[string]string{}
	for _, r := range fresh {
		c := stored[r.ID]
		if c.Fresh || c.Node == "" || c.Node == r.Event.NodeName {
			continue
		}
		alias := record.Alias(r.Event.NodeName, r.ID)
		original[alias] = r.ID
		r.Accepted = record.Content(r)
		r.ID, r.Event.ID = alias, alias
		aliases = append(aliases, r)
	}
	if len(aliases) == 0 {
		return nil
	}
	under, err := insert(ctx, aliases)
	for alias, id := range original {
		stored[id] = under[alias]
	}
	return err
}

// Moved is ErrMoved if the store is another server than it was asked to be; empty
// is any.
func Moved(asked, now string) error {
	if asked == "" || asked == now {
		return nil
	}
	return store.ErrMoved
}

// Content is what is stored under an id, about which node, and whether it was stored
// just now.
type Content struct {
	Digest string
	// Node is empty where an account may not know it.
	Node  string
	Fresh bool
}

// appendResult is the result of an appended record; first reports whether it was the first
// of its id in the batch.
func appendResult(stored Content, r record.Record, first bool) store.AppendResult {
	switch {
	case stored.Fresh && first:
		return store.Appended
	case stored.Digest == record.Content(r):
		return store.Duplicate
	}
	return store.Refused
}

// Apply is the decision of a batch: every record after its change, or what
// forbids the batch. Absence comes before a lost race, a lost race before a
// refusal.
func Apply(writer record.Writer, before map[string]record.Record, changes []store.Change) ([]record.Record, error) {
	var missing, lost, refused []error
	var after []record.Record
	done := map[string]bool{}
	for _, c := range changes {
		r, ok := before[c.ID]
		switch {
		case !ok:
			missing = append(missing, fmt.Errorf("record %q: %w", c.ID, store.ErrNotFound))
			continue
		case r.Revision != c.Revision || done[c.ID]:
			lost = append(lost, fmt.Errorf("record %q at revision %d: %w", c.ID, r.Revision, store.ErrConflict))
			continue
		}
		done[c.ID] = true
		next, err := changed(writer, r, c)
		if err != nil {
			refused = append(refused, fmt.Errorf("record %q: %w", c.ID, err))
		}
		after = append(after, next)
	}
	for _, problems := range [][]error{missing, lost, refused} {
		if len(problems) > 0 {
			return nil, errors.Join(problems...)
		}
	}
	return after, nil
}

// changed is r after its change. A change without ExpireAt keeps the stored
// one; fault-quarantine alone may set another. What this version does not know stays
// as it is stored.
func changed(writer record.Writer, r record.Record, c store.Change) (record.Record, error) {
	if why := record.NeedsNewer(r); why != "" {
		return r, fmt.Errorf("%w: %s", store.ErrNewer, why)
	}
	problem := record.CheckWrite(writer, r.Status, c.Status)
	if c.ExpireAt != nil && !sameInstant(c.ExpireAt, r.ExpireAt) {
		if writer != record.FaultQuarantine {
			problem = errors.Join(problem, fmt.Errorf("%w: %s writes expireAt of %s", record.ErrNotOwner, writer, record.FaultQuarantine))
		}
		r.ExpireAt = c.ExpireAt
	}
	extra := r.Status.Extra
	r.Status = c.Status
	r.Status.Extra = extra
	r.Revision++
	if problem == nil {
		problem = Storable(r)
	}
	return r, problem
}

func sameInstant(a, b *time.Time) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}
