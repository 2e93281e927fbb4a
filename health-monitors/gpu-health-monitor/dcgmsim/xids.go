package dcgmsim

import (
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// sample is one XID as the engine keeps it.
type sample struct {
	entity    reading.Entity
	number    int64
	at, after time.Time // its timestamp, and when it is appended
}

// shown are the incidents that an XID makes, as measured: they stay until the
// engine is started again.
var shown = map[int64]reading.Incident{
	79: {System: reading.AllSystems, Health: reading.Fail, Code: 120},
	94: {System: reading.AllSystems, Health: reading.Warn, Code: 131},
	95: {System: reading.AllSystems, Health: reading.Fail, Code: 81},
	31: {System: 0x10, Health: reading.Warn, Code: 101},

	48:  {System: reading.AllSystems, Health: reading.Fail, Code: 101},
	74:  {System: reading.AllSystems, Health: reading.Fail, Code: 101},
	119: {System: reading.AllSystems, Health: reading.Fail, Code: 101},
	120: {System: reading.AllSystems, Health: reading.Fail, Code: 101},
	140: {System: reading.AllSystems, Health: reading.Fail, Code: 101},

	57: {System: 0x100, Health: reading.Warn, Code: 12},
	60: {System: 0x80, Health: reading.Warn, Code: 10},
	63: {System: 0x10, Health: reading.Warn, Code: 6},
	64: {System: 0x10, Health: reading.Fail, Code: 80},
}

// XID happens on a GPU, as the driver's event reports it; several happen at once.
func (e *Engine) XID(gpu uint, numbers ...int64) {
	e.change(func() {
		now := time.Now()
		for _, number := range numbers {
			if x, ok := shown[number]; ok {
				x.Entity = reading.Entity{Kind: reading.GPU, ID: gpu}
				e.latched = append(e.latched, x)
			}
			e.record(sample{reading.Entity{Kind: reading.GPU, ID: gpu}, number, now, now})
			e.xids = append(e.xids, fmt.Sprintf("%d %d %d\n", gpu, number, now.UnixMicro()))
		}
	})
}

// KernelXID is one that the engine reads in the kernel's messages: no incident
// shows it, and its sample bears the kernel's time and comes later.
func (e *Engine) KernelXID(gpu uint, number int64, late time.Duration) {
	e.change(func() {
		now := time.Now()
		e.record(sample{reading.Entity{Kind: reading.GPU, ID: gpu}, number, now, now.Add(late)})
	})
}

// AppendXID appends an XID of a GPU or a MIG instance now, with the kernel's timestamp of a
// time before: the engine cannot append any while the driver hangs.
func (e *Engine) AppendXID(entity reading.Entity, number int64, at time.Time) {
	e.change(func() { e.record(sample{entity, number, at, at}) })
}

// record keeps an XID in the kernel's records and appends it.
func (e *Engine) record(x sample) {
	e.kernel = append(e.kernel, x)
	e.keep(x)
}

func (e *Engine) keep(x sample) {
	e.samples = append(e.samples, fmt.Sprintf("%d %d 230 %d %d %d\n", x.entity.Kind, x.entity.ID, x.number, x.at.UnixMicro(), x.after.UnixMicro()))
}
