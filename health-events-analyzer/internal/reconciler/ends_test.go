package reconciler_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
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

// TestACauseThatEndedLongBeforeTheStart: a reconciler that begins anew reads a window,
// and the recovery of a fault's first cause is older than that.
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
