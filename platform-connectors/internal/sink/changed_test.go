package sink

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestPipelineChangesAreMatchedByAcceptedEvent: the store has the fault under the
// content that the connector accepted, and gets it under the same again.
func TestPipelineChangesAreMatchedByAcceptedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{epoch: "one"}
		q.add(xid("0"))
		f := newFold(t, filepath.Join(t.TempDir(), "faults.json"), q, &history{})
		f.Change = func(_ context.Context, r record.Record) record.Record {
			r.Event.RecommendedAction = record.ActionNone
			return r
		}
		run(t, f, time.Minute)
		accepted := q.entries[0].Record
		again := f.Stored([]string{accepted.ID})
		if len(again) != 1 || again[0].Event.RecommendedAction != record.ActionNone || again[0].Accepted != record.Digest(accepted.Event) {
			t.Errorf("made again %+v, want the content %s", again, record.Digest(accepted.Event))
		}
	})
}
