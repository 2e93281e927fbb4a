package matching_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const sameXIDOnTwoGPUs = `
[[rules]]
name = "SameXIDOnTwoGPUs"
action = "NONE"
clear = "sources"
window = "10m"
by = ["code"]
distinct = ["gpu"]
count = 2
[rules.when]
checks = ["SysLogsXIDError"]
`

// TestACauseThatEndedLongBeforeTheStart: a matcher that starts reads a window, and the
// recovery of a fault's first cause is older than that.
func TestACauseThatEndedLongBeforeTheStart(t *testing.T) {
	s := storetest.SQLite(t)
	other := func(x *record.Record) { x.Event.EntitiesImpacted[0].EntityValue = "GPU-other" }
	first := newRack(t, s, 1000, parsed(t, sameXIDOnTwoGPUs))
	first.deliver(first.event(1, -2*time.Minute), first.event(1, -time.Minute, other))
	first.deliver(first.event(1, time.Minute, healthy))
	first.want("one of two causes is over", "SameXIDOnTwoGPUs n1")
	for range 100 { // more than are read anyway
		first.event(1, 40*time.Hour, func(x *record.Record) { x.Event.CheckName = "GpuMemWatch" })
	}
	late := newRack(t, s, 1000, parsed(t, sameXIDOnTwoGPUs))
	late.clock.Step(50 * time.Hour)
	late.deliver(late.event(1, 50*time.Hour, other, healthy))
	late.want("the last cause is over", "SameXIDOnTwoGPUs n1", "-SameXIDOnTwoGPUs n1")
}

const oneXID = `
[[rules]]
name = "OneXID"
action = "NONE"
clear = "sources"
window = "10h"
by = ["gpu"]
[rules.when]
checks = ["SysLogsXIDError"]
`

// TestTheSecondFaultOfAWindowEnds: as the first one does, whether the analyzer hears of
// its own events soon or late. A recovery ends what was published before it.
func TestTheSecondFaultOfAWindowEnds(t *testing.T) {
	for name, heard := range map[string]bool{"soon": true, "late": false} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, storetest.SQLite(t), 1000, parsed(t, oneXID))
			known := map[string]bool{}
			hear := func() {
				list, err := r.store.List(t.Context(), store.Query{Selector: record.Selector{Agent: record.AnalyzerAgent}})
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range list {
					if !known[x.ID] {
						known[x.ID] = true
						r.deliver(x.ID)
					}
				}
			}
			step := func(i int, edit ...func(*record.Record)) {
				r.deliver(r.event(1, time.Duration(i)*time.Minute, edit...))
				if heard {
					hear()
				}
			}
			r.clock.Step(time.Hour)
			step(1)
			step(2, healthy)
			r.want("the first", "OneXID n1", "-OneXID n1")
			step(3)
			step(4, healthy)
			r.want("the second", "OneXID n1", "-OneXID n1", "OneXID n1", "-OneXID n1")
			hear()
			step(5)
			step(6, healthy)
			hear()
			r.want("the third", "OneXID n1", "-OneXID n1", "OneXID n1", "-OneXID n1", "OneXID n1", "-OneXID n1")
		})
	}
}
