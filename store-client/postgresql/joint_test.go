package postgresql_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// slowStore is a store behind a line, some records, and an update of each.
func slowStore(t *testing.T, n int) (s store.Store, way *cutproxy.Proxy, dsn string, changes []store.Change) {
	t.Helper()
	_, dsn = pgtest.Database(t)
	way = line(t)
	s = storetest.Open(t, through(t, way, dsn), storeopen.Options{})
	for range n {
		r := storetest.Record("n")
		storetest.MustAppend(t, s, r)
		changes = append(changes, store.Change{ID: r.ID, Status: record.Status{UserPodsEvictionStatus: record.EvictionStatus{Message: "m"}}})
	}
	return s, way, dsn, changes
}

// beginUpdate begins an update and gives its outcome.
func beginUpdate(ctx context.Context, s store.Store, changes ...store.Change) (outcome chan error) {
	outcome = make(chan error, 1)
	go func() {
		_, err := s.Update(ctx, record.NodeDrainer, changes)
		outcome <- err
	}()
	return outcome
}

// stands checks a record's revision.
func stands(t *testing.T, s store.Store, c store.Change, want int64) {
	t.Helper()
	if got := storetest.MustGet(t, s, c.ID).Revision; got != want {
		t.Errorf("record %s has revision %d, want %d", c.ID, got, want)
	}
}

// heldUpdate has an update's statement held on its way to the server.
func heldUpdate(t *testing.T, s store.Store, way *cutproxy.Proxy, c store.Change) (outcome chan error, release func()) {
	t.Helper()
	trap := way.Set(jointMessage, cutproxy.Hold)
	outcome = beginUpdate(t.Context(), s, c)
	select {
	case <-trap.Sprung():
	case err := <-outcome:
		t.Fatalf("the update ended before its statement was sent: %v", err)
	}
	return outcome, trap.Release
}

// blocked waits until a statement waits for a lock, and is that statement.
func blocked(t *testing.T, dsn string) (query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	db := raw(t, dsn)
	for query == "" {
		err := db.QueryRowContext(ctx, `SELECT COALESCE(max(query), '') FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND state = 'active'`).Scan(&query)
		if err != nil {
			t.Fatalf("nobody waits: %v", err)
		}
	}
	return query
}

// A record that somebody has locked holds up its own update and no other.
func TestLockedRecordBlocksNoOtherUpdate(t *testing.T) {
	s, _, dsn, changes := slowStore(t, 3)
	tx, err := raw(t, dsn).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT FROM health_events WHERE id = $1 FOR UPDATE", changes[0].ID); err != nil {
		t.Fatal(err)
	}
	locked := beginUpdate(t.Context(), s, changes[0], changes[1])
	if query := blocked(t, dsn); strings.Contains(query, "given") {
		t.Errorf("the statement of a group waits: %s", query)
	}
	if err := <-beginUpdate(t.Context(), s, changes[2]); err != nil {
		t.Error(err)
	}
	stands(t, s, changes[2], 1)
	stands(t, s, changes[1], 0)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Error(err)
	}
	stands(t, s, changes[0], 1)
	stands(t, s, changes[1], 1)
}

// A caller that goes while others' updates are written gets the error at once that nothing
// was applied, and nothing is; those who came with it are.
func TestACallerThatWentIsNotApplied(t *testing.T) {
	s, way, _, changes := slowStore(t, 3)
	first, release := heldUpdate(t, s, way, changes[0])
	ctx, cancel := context.WithCancel(t.Context())
	gone, stays := beginUpdate(ctx, s, changes[1]), beginUpdate(t.Context(), s, changes[2])
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who went is told %v", err)
	}
	release()
	for _, outcome := range []chan error{first, stays} {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	stands(t, s, changes[0], 1)
	stands(t, s, changes[1], 0)
	stands(t, s, changes[2], 1)
}

// A caller that goes when its update is on its way gets the outcome of the update.
func TestACallerOfASentUpdateLearnsItsOutcome(t *testing.T) {
	s, way, _, changes := slowStore(t, 1)
	trap := way.Set(jointMessage, cutproxy.Hold)
	ctx, cancel := context.WithCancel(t.Context())
	outcome := beginUpdate(ctx, s, changes[0])
	<-trap.Sprung()
	cancel()
	trap.Release()
	if err := <-outcome; err != nil {
		t.Errorf("it was applied, and its caller told %v", err)
	}
	stands(t, s, changes[0], 1)
}

// frozen is the context of a process that was stopped: its time is over, and none of its
// timers has fired.
type frozen struct {
	context.Context
	over      chan struct{}
	requested chan struct{}
}

func (f frozen) Done() <-chan struct{} { return make(chan struct{}) }

func (f frozen) Err() error {
	select {
	case <-f.over:
		return context.DeadlineExceeded
	default:
		f.requested <- struct{}{}
		return nil
	}
}

// An update is not applied if the lease has run out by the clock, whatever the timers show.
func TestFenceIsCheckedBeforeTheStatement(t *testing.T) {
	s, way, _, changes := slowStore(t, 2)
	first, release := heldUpdate(t, s, way, changes[0])
	ctx := frozen{t.Context(), make(chan struct{}), make(chan struct{}, 8)}
	fenced := beginUpdate(ctx, s, changes[1])
	<-ctx.requested // it has come, and waits for the first
	close(ctx.over)
	release()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-fenced; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who may act no more is told %v", err)
	}
	stands(t, s, changes[1], 0)
}

// What the server refuses of one is refused to that one.
func TestRefusedUpdateBlocksNoOther(t *testing.T) {
	s, _, dsn, changes := slowStore(t, 12)
	bad := changes[5].ID
	for _, step := range []string{
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = '" + bad + "' THEN RAISE 'not this one'; END IF; RETURN NEW; END $$",
		"CREATE TRIGGER refuse BEFORE UPDATE ON health_events FOR EACH ROW EXECUTE FUNCTION refuse()",
	} {
		if _, err := raw(t, dsn).ExecContext(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	for round := range int64(4) {
		var all sync.WaitGroup
		for i := range changes {
			all.Go(func() {
				_, err := s.Update(t.Context(), record.NodeDrainer, changes[i:i+1])
				if refused := err != nil && strings.Contains(err.Error(), "not this one"); refused != (changes[i].ID == bad) || err != nil && !refused {
					t.Errorf("update %d: %v", i, err)
				}
			})
		}
		all.Wait()
		for i := range changes {
			if changes[i].ID != bad {
				stands(t, s, changes[i], round+1)
				changes[i].Revision++
			}
		}
	}
	stands(t, s, changes[5], 0)
}

// Documents beyond what a group reads are changed without one.
func TestLargeDocumentsAreUpdated(t *testing.T) {
	s, way, _, changes := slowStore(t, 0)
	trap := way.Set("WITH given", cutproxy.CutAfter)
	for range 2 {
		r := storetest.Record("n", func(r *record.Record) { r.Event.Message = strings.Repeat("x", store.PageBytes/2) })
		storetest.MustAppend(t, s, r)
		changes = append(changes, store.Change{ID: r.ID})
	}
	if err := <-beginUpdate(t.Context(), s, changes...); err != nil {
		t.Error(err)
	}
	select {
	case <-trap.Sprung():
		t.Error("a group read more than its bound")
	default:
	}
	for _, c := range changes {
		stands(t, s, c, 1)
	}
}

// An update that is overtaken between its reading and its writing is not applied in
// part.
func TestAnOvertakenUpdateIsNotAppliedInPart(t *testing.T) {
	s, way, dsn, changes := slowStore(t, 2)
	trap := way.Set(jointMessage, cutproxy.Hold)
	overtaken := beginUpdate(t.Context(), s, changes...)
	<-trap.Sprung()
	if err := <-beginUpdate(t.Context(), storetest.Open(t, dsn, storeopen.Options{}), changes[1]); err != nil {
		t.Error(err)
	}
	trap.Release()
	if err := <-overtaken; !errors.Is(err, store.ErrConflict) {
		t.Errorf("who was overtaken is told %v", err)
	}
	stands(t, s, changes[0], 0)
	stands(t, s, changes[1], 1)
}

// An update whose answer was lost is not reported to have lost a race, against itself.
func TestALostAnswerIsNoConflict(t *testing.T) {
	s, way, _, changes := slowStore(t, 1)
	way.Set(jointMessage, cutproxy.CutAfter)
	if err := <-beginUpdate(t.Context(), s, changes[0]); err == nil || errors.Is(err, store.ErrConflict) {
		t.Errorf("an update whose answer was lost has the outcome %v", err)
	}
	stands(t, s, changes[0], 1)
}

// A connection that neither answers nor breaks costs its group some time, and those
// who wait none of their updates.
func TestASilentConnectionIsLeft(t *testing.T) {
	testkit.Long(t, "a group gives its statement ten seconds")
	s, way, _, changes := slowStore(t, 2)
	silent, release := heldUpdate(t, s, way, changes[0])
	defer release()
	began := time.Now()
	if err := <-beginUpdate(t.Context(), s, changes[1]); err != nil {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if err := <-silent; err == nil {
		t.Error("an update that the server never saw was acknowledged")
	}
	stands(t, s, changes[0], 0)
	stands(t, s, changes[1], 1)
}
