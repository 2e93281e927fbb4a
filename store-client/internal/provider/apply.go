package provider

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

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
