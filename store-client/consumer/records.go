package consumer

import (
	"context"
	"strconv"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Records are a store's records in the hands of one writer, which is not to look again
// at a record because of its own stamp alone. It is safe for concurrent records.
type Records struct {
	store.Store
	Writer record.Writer

	own OwnWrites
}

// Write is Update by the writer; news says that somebody else changed one of
// the records right after it, so that the caller has to look again.
func (r *Records) Write(ctx context.Context, changes []store.Change) (news bool, err error) {
	for _, c := range changes {
		r.own.Begin(c.ID)
	}
	after, err := r.Update(ctx, r.Writer, changes)
	revisions := map[string]string{} // none after a failure: nobody knows
	for _, written := range after {
		revisions[written.ID] = revision(written)
	}
	for _, c := range changes {
		if r.own.End(c.ID, revisions[c.ID]) {
			news = true
		}
	}
	return news, err //nolint:wrapcheck // the caller says what it was doing
}

// ignores says that a delivery shows the writer's own last write.
func (r *Records) ignores(delivered record.Record) bool {
	return r.own.Ignores(delivered.ID, revision(delivered))
}

func revision(r record.Record) string { return strconv.FormatInt(r.Revision, 10) }
