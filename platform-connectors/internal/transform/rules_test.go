package transform

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// TestOtherRulesAreThoseOfTheBacklogToo: events that the store does not have yet are
// evaluated by the present rules: in another life, and after a reload.
func TestOtherRulesAreThoseOfTheBacklogToo(t *testing.T) {
	more := append(slices.Clone(rules), pipeline.ConfirmRule{Name: "new", When: `event.checkName == "N"`, StandsFor: 2 * time.Minute})
	run := func(t *testing.T, d *Confirmation) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := d.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for name, live := range map[string]func(t *testing.T, path string, q *queue){
		"another life": func(t *testing.T, path string, q *queue) {
			q.send("2", "X") // has the file written
			d := newFollower(t, path, q)
			d.Reader = storeIsAway{}
			run(t, d)
			d = newFollower(t, path, q)
			d.Reader, d.Evaluate = storeIsAway{}, evaluate(t, more...)
			run(t, d)
		},
		"a reload": func(t *testing.T, path string, q *queue) {
			d := newFollower(t, path, q)
			var now atomic.Pointer[evaluation]
			before := d.Evaluate
			now.Store(&before)
			d.Reader, d.Evaluate = storeIsAway{}, func(ctx context.Context, r record.Record) (record.Event, pipeline.Notes) {
				return (*now.Load())(ctx, r)
			}
			wake, next := d.Waker(), evaluate(t, more...)
			time.AfterFunc(time.Minute, func() { now.Store(&next); wake() })
			run(t, d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				q.send("1", "N")
				live(t, filepath.Join(t.TempDir(), "unconfirmed.json"), q)
				if got := q.confirmations(); got != "1" {
					t.Errorf("confirmed %q", got)
				}
			})
		})
	}
}

// TestRunWithoutRulesEndsTheWaits: it sees no recovery.
func TestRunWithoutRulesEndsTheWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, path := newQueue(), filepath.Join(t.TempDir(), "unconfirmed.json")
		q.send("1", "T")
		live(t, path, q, time.Minute)
		for range 2 {
			if err := Discard(path); err != nil {
				t.Fatal(err)
			}
		}
		live(t, path, q, time.Hour)
		if got := q.confirmations(); got != "" {
			t.Errorf("confirmed %q", got)
		}
	})
}

// storeIsAway releases nothing.
type storeIsAway struct{}

func (storeIsAway) Confirm(uint64) error { return nil }
