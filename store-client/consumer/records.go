package consumer

import (
	"context"
	"strconv"
	"sync"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Records are a store's records for one writer, which need not handle a record again
// because of its own status update alone. It is safe for concurrent records.
type Records struct {
	store.Store
	Writer record.Writer

	own OwnWrites
}

// Write is Update by the writer; news reports whether somebody else changed one of the
// records right after it, so that the caller has to read them again.
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

// ignores reports whether a delivery shows the writer's own last write.
func (r *Records) ignores(delivered record.Record) bool {
	return r.own.Ignores(delivered.ID, revision(delivered))
}

func revision(r record.Record) string { return strconv.FormatInt(r.Revision, 10) }

// OwnWrites remembers the last own write of each thing until it is heard of. The
// zero OwnWrites is empty; it is safe for concurrent use.
type OwnWrites struct {
	mu sync.Mutex
	// wrote is the version that the last own write of a thing made.
	wrote map[string]string
	// writing are the versions heard of while a write is under way.
	writing map[string][]string
}

// Begin marks that a thing is about to be written: news of it is kept back until End. There
// is one writer of a thing at a time.
func (o *OwnWrites) Begin(thing string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing == nil {
		o.wrote, o.writing = map[string]string{}, map[string][]string{}
	}
	delete(o.wrote, thing)
	o.writing[thing] = nil
}

// End records which version the write made; empty if it failed or the version is unknown.
// news reports whether other versions were heard of meanwhile: the caller has to read the
// thing again.
func (o *OwnWrites) End(thing, version string) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	came := false
	for _, heard := range o.writing[thing] {
		came = came || heard == version
		news = news || heard != version
	}
	delete(o.writing, thing)
	if version != "" && !came {
		o.wrote[thing] = version
	}
	return news
}

// Ignores reports whether a version of a thing is nothing to act upon now: it is
// what was written last, or End will report it. An own write is ignored once, and
// not any more after other news of the thing.
func (o *OwnWrites) Ignores(thing, version string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, busy := o.writing[thing]; busy {
		o.writing[thing] = append(o.writing[thing], version)
		return true
	}
	own := version != "" && o.wrote[thing] == version
	delete(o.wrote, thing)
	return own
}
