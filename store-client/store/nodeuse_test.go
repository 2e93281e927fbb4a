package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

var noon = time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)

// TestDays: each gateway has one, the newest, and one that cannot be read hides no other.
func TestDays(t *testing.T) {
	s := storetest.SQLite(t)
	day := func(gateway, day string, records int64) store.UseDay {
		return store.UseDay{Gateway: gateway, Day: day, Nodes: map[string]store.NodeUse{"gpu-7": {
			Bytes: 10, Records: records, Counted: store.CountedUse{}.Add(2, 20, noon).Add(1, 10, noon.Add(time.Hour)),
		}}}
	}
	for i, d := range []store.UseDay{day("a", "2026-03-28", 1), day("b", "2026-03-29", 2), day("a", "2026-03-29", 3)} {
		if err := store.WriteUse(t.Context(), s, d, noon.Add(time.Duration(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Dead(t.Context(), store.DeadLetter{ID: "c", Source: store.NodesUse, Body: []byte("{"), At: noon.Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	got, err := store.ReadUse(t.Context(), s)
	if diff := cmp.Diff([]store.UseDay{day("a", "2026-03-29", 3), day("b", "2026-03-29", 2)}, got); diff != "" || err == nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if c := got[0].Nodes["gpu-7"].Counted; c != (store.CountedUse{Records: 3, Bytes: 30, First: noon, Last: noon.Add(time.Hour)}) {
		t.Errorf("counted: %+v", c)
	}
}

func TestPlus(t *testing.T) {
	at := func(hour int) time.Time { return noon.Add(time.Duration(hour) * time.Hour) }
	early, late := store.CountedUse{Records: 1, Bytes: 2, First: at(1), Last: at(3)}, store.CountedUse{Records: 10, Bytes: 20, First: at(2), Last: at(4)}
	want := store.CountedUse{Records: 11, Bytes: 22, First: at(1), Last: at(4)}
	for name, got := range map[string]store.CountedUse{"early and late": early.Plus(late), "late and early": late.Plus(early), "nothing": want.Plus(store.CountedUse{}), "of nothing": store.CountedUse{}.Plus(want)} {
		if got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
