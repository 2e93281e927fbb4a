// Package storetest proves a store: the conformance suite that every provider
// passes over real connections, and fixtures for the tests of other packages.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// SQLite opens a store in a new temporary folder; it is closed with the test.
func SQLite(t testing.TB) store.Store {
	t.Helper()
	return Open(t, SQLiteDSN(t), storeopen.Options{})
}

// SQLiteDSN is the address of a store in a new temporary folder.
func SQLiteDSN(t testing.TB) string {
	t.Helper()
	return "sqlite://" + filepath.Join(t.TempDir(), "nvsentinel.db")
}

// Open opens a store until the test ends; sqlite is admitted.
func Open(t testing.TB, dsn string, o storeopen.Options) store.Store {
	t.Helper()
	o.SingleHost = true
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	s, err := storeopen.Open(ctx, dsn, o)
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return s
}

// Record is a PROCESS fault of a node with a new id; edit changes it first.
func Record(node string, edit ...func(*record.Record)) record.Record {
	id := uuid.Must(uuid.NewV7()).String()
	r := record.Record{
		ID:        id,
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC),
		Event: record.Event{
			Version: 1, ID: id, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError",
			IsFatal: true, Message: "XID 79", RecommendedAction: record.ActionRestartVM, ErrorCode: []string{"79"},
			EntitiesImpacted:   []record.Entity{{EntityType: "PCI", EntityValue: "0000:b3:00"}},
			GeneratedTimestamp: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			NodeName:           node, ProcessingStrategy: record.Process,
		},
	}
	for _, e := range edit {
		e(&r)
	}
	return r
}

// MustAppend stores new records and fails the test unless all are new.
func MustAppend(t testing.TB, s store.Store, records ...record.Record) {
	t.Helper()
	results, err := s.Append(t.Context(), records)
	if err != nil {
		t.Fatalf("appending: %v", err)
	}
	for i, r := range results {
		if r != store.Appended {
			t.Fatalf("record %q: %v, want appended", records[i].ID, r)
		}
	}
}

// Seed stores records with the statuses that the services would write: all are appended, then
// every writer in turn writes its part of the given statuses. It returns the records as stored.
func Seed(t testing.TB, s store.Store, records ...record.Record) []record.Record {
	t.Helper()
	var fresh []record.Record
	for _, r := range records {
		r.Status = record.Status{}
		if r.Acts() {
			r.ExpireAt = nil
		}
		fresh = append(fresh, r)
	}
	MustAppend(t, s, fresh...)
	for _, step := range steps {
		var changes []store.Change
		for _, r := range records {
			before := MustGet(t, s, r.ID)
			after := step.part(before.Status, r.Status)
			expire := r.ExpireAt
			if step.writer != record.FaultQuarantine {
				expire = nil
			}
			if !sameDocument(before.Status, after) || expire != nil {
				changes = append(changes, store.Change{ID: r.ID, Revision: before.Revision, Status: after, ExpireAt: expire})
			}
		}
		if _, err := s.Update(t.Context(), step.writer, changes); err != nil {
			t.Fatalf("stamping as %s: %v", step.writer, err)
		}
	}
	out := make([]record.Record, len(records))
	for i, r := range records {
		out[i] = MustGet(t, s, r.ID)
	}
	return out
}

// steps lead from an empty status to any; part adds one step of want to have.
var steps = []struct {
	writer record.Writer
	part   func(have, want record.Status) record.Status
}{
	{record.FaultQuarantine, func(have, want record.Status) record.Status {
		have.NodeQuarantined, have.QuarantineFinishTimestamp = want.NodeQuarantined, want.QuarantineFinishTimestamp
		have.QuarantineVerdict, have.Session, have.Faults = want.QuarantineVerdict, want.Session, want.Faults
		if want.NodeQuarantined == record.QuarantineCanceled {
			have.NodeQuarantined = record.Quarantined
		}
		return have
	}},
	{record.FaultQuarantine, func(have, want record.Status) record.Status {
		have.NodeQuarantined = want.NodeQuarantined
		return have
	}},
	{record.NodeDrainer, func(have, want record.Status) record.Status {
		have.UserPodsEvictionStatus, have.DrainFinishTimestamp = want.UserPodsEvictionStatus, want.DrainFinishTimestamp
		return have
	}},
	{record.FaultRemediation, func(have, want record.Status) record.Status {
		have.FaultRemediated, have.LastRemediationTimestamp = want.FaultRemediated, want.LastRemediationTimestamp
		have.Remediation = want.Remediation
		return have
	}},
}

// sameDocument compares two values as they are stored.
func sameDocument(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// MustGet reads a stored record.
func MustGet(t testing.TB, s store.Store, id string) record.Record {
	t.Helper()
	r, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("reading record %q: %v", id, err)
	}
	return r
}

// Receive takes n records from a feed and commits each of them.
func Receive(t testing.TB, f store.Feed, n int) []record.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	var out []record.Record
	for len(out) < n {
		r, position, err := f.Next(ctx)
		if err != nil {
			t.Fatalf("record %d of %d from the feed: %v", len(out)+1, n, err)
		}
		if err := f.Commit(ctx, position); err != nil {
			t.Fatalf("committing: %v", err)
		}
		out = append(out, r)
	}
	return out
}
