package storetest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// newerLeft: no update, of whatever kind and from whichever writer, changes a newer record.
func newerLeft(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	records := faults(4)
	for i := range records {
		records[i].Status = fullStatus(records[i].ID)
	}
	Seed(t, s, records...)
	sealed := map[string]string{
		records[0].ID: `"minversion":2`, records[1].ID: `"reason":"NewerReason"`, records[2].ID: `"status":"NewerStatus"`,
	}
	for id, with := range sealed {
		b.Edit(t, dsn, id, func(doc []byte) []byte {
			tree := treeOf(t, doc)
			status, _ := tree["healtheventstatus"].(map[string]any)
			switch {
			case strings.Contains(with, "minversion"):
				tree["minversion"] = record.Version + 1
			case strings.Contains(with, "reason"):
				status["quarantineverdict"].(map[string]any)["reason"] = "NewerReason" //nolint:forcetypeassert // updated
			default:
				status["userpodsevictionstatus"].(map[string]any)["status"] = "NewerStatus" //nolint:forcetypeassert // updated
			}
			out, err := json.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			return out
		})
	}
	change := func(w record.Writer, edit func(*record.Status), ids ...string) error {
		var changes []store.Change
		for _, id := range ids {
			r := MustGet(t, s, id)
			edit(&r.Status)
			changes = append(changes, store.Change{ID: id, Revision: r.Revision, Status: r.Status})
		}
		_, err := s.Update(within(t), w, changes)
		return err
	}
	for _, w := range writes {
		for id, with := range sealed {
			for _, ids := range [][]string{{id}, {records[3].ID, id}} {
				before := b.stored(t, dsn, id)
				if err := change(w.writer, w.edit, ids...); !errors.Is(err, store.ErrNewer) {
					t.Errorf("%s changes a record with %s, of %d: %v", w.writer, with, len(ids), err)
				}
				if diff := cmp.Diff(treeOf(t, before), treeOf(t, b.stored(t, dsn, id))); diff != "" {
					t.Errorf("%s (-before +after):\n%s", with, diff)
				}
			}
		}
		if err := change(w.writer, w.edit, records[3].ID); err != nil {
			t.Errorf("%s changes another record: %v", w.writer, err)
		}
	}
}

// newerSchema: a program that was open when a newer one brought the database up to date
// writes nothing more, reads, and goes on if the database is as before.
func newerSchema(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	r := Record("n")
	MustAppend(t, s, r)
	f := openFeed(t, s, "c", record.AllHealthEventInserts())
	_, position, err := f.Next(within(t))
	if err != nil {
		t.Fatal(err)
	}
	evaluated := record.Status{QuarantineVerdict: &record.Verdict{Reason: record.NoRuleMatched}}
	calls := map[string]func() error{
		"Append": func() error { _, err := s.Append(within(t), faults(1)); return err },
		"Update": func() error {
			_, err := s.Update(within(t), record.FaultQuarantine, []store.Change{{ID: r.ID, Status: evaluated}})
			return err
		},
		"Dead":   func() error { return s.Dead(within(t), store.DeadLetter{ID: "x", Source: "y", At: r.CreatedAt}) },
		"Expire": func() error { _, err := s.Expire(within(t), r.CreatedAt); return err },
		"Commit": func() error { return f.Commit(within(t), position) },
		"Open": func() error {
			other, err := storeopen.Open(within(t), dsn, storeopen.Options{SingleHost: true})
			if err == nil {
				err = other.Close()
			}
			return err
		},
	}
	b.Schema(t, dsn, true)
	for name, call := range calls {
		if err := call(); !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), "docs/tasks/upgrade.md") {
			t.Errorf("%s to a newer schema: %v", name, err)
		}
	}
	if got := MustGet(t, s, r.ID); got.Revision != 0 {
		t.Errorf("the record is at revision %d", got.Revision)
	}
	if list, err := s.List(within(t), store.Query{}); len(list) != 1 || err != nil {
		t.Errorf("%d records, %v", len(list), err)
	}
	b.Schema(t, dsn, false)
	for name, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}
