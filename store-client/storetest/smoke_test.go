package storetest

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

func TestSmoke(t *testing.T) {
	s := SQLite(t)
	a, b := Record("n1"), Record("n2")
	MustAppend(t, s, a, b)
	f, err := s.Feed(t.Context(), "c", record.ProcessableHealthEventInserts())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := Receive(t, f, 2)
	if got[0].ID != a.ID || got[1].ID != b.ID {
		t.Fatal("order")
	}
	l, err := s.List(t.Context(), store.Query{Selector: record.BacklogOfNode("n1")})
	if err != nil || len(l) != 1 {
		t.Fatal(l, err)
	}
	a.Status = record.Status{NodeQuarantined: record.Quarantined, Session: a.ID, QuarantineVerdict: &record.Verdict{Reason: record.Matched}, Faults: []record.Fault{{Key: "x"}}}
	a2 := Record("n1")
	a2.Status = a.Status
	Seed(t, s, a2)
	l, err = s.List(t.Context(), store.Query{Selector: record.OpenOfNode("n1")})
	if err != nil || len(l) != 1 {
		t.Fatal(l, err)
	}
}
