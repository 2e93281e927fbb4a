package nodeuse_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/store-client/nodeuse"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

var noon = time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)

// TestDays: each gateway has one, the newest, and one that cannot be read hides no other.
func TestDays(t *testing.T) {
	s := storetest.SQLite(t)
	day := func(gateway, day string, records int64) nodeuse.Day {
		return nodeuse.Day{Gateway: gateway, Day: day, Nodes: map[string]nodeuse.Node{"gpu-7": {
			Bytes: 10, Records: records, Counted: nodeuse.Counted{}.Add(2, 20, noon).Add(1, 10, noon.Add(time.Hour)),
		}}}
	}
	for i, d := range []nodeuse.Day{day("a", "2026-03-28", 1), day("b", "2026-03-29", 2), day("a", "2026-03-29", 3)} {
		if err := nodeuse.Write(t.Context(), s, d, noon.Add(time.Duration(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Dead(t.Context(), store.DeadLetter{ID: "c", Source: nodeuse.Source, Body: []byte("{"), At: noon.Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	got, err := nodeuse.Read(t.Context(), s)
	if diff := cmp.Diff([]nodeuse.Day{day("a", "2026-03-29", 3), day("b", "2026-03-29", 2)}, got); diff != "" || err == nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if c := got[0].Nodes["gpu-7"].Counted; c != (nodeuse.Counted{Records: 3, Bytes: 30, First: noon, Last: noon.Add(time.Hour)}) {
		t.Errorf("counted: %+v", c)
	}
}

func TestPlus(t *testing.T) {
	at := func(hour int) time.Time { return noon.Add(time.Duration(hour) * time.Hour) }
	early, late := nodeuse.Counted{Records: 1, Bytes: 2, First: at(1), Last: at(3)}, nodeuse.Counted{Records: 10, Bytes: 20, First: at(2), Last: at(4)}
	want := nodeuse.Counted{Records: 11, Bytes: 22, First: at(1), Last: at(4)}
	for name, got := range map[string]nodeuse.Counted{"early and late": early.Plus(late), "late and early": late.Plus(early), "nothing": want.Plus(nodeuse.Counted{}), "of nothing": nodeuse.Counted{}.Plus(want)} {
		if got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
