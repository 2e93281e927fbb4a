package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/utils/clock"
)

// Collections of garbage that follow each other within hurried are those of a process
// under load; with one that took idle to come the load is over. At rest the runtime
// collects every two minutes.
const (
	hurried = time.Second
	idle    = 10 * time.Second
)

// baseGCPercent is by how many percent of what lives in it the runtime lets the heap grow.
const baseGCPercent = 100

// limitMemory makes nine tenths of the container's memory limit the runtime's, unless
// GOMEMLIMIT or AUTOMEMLIMIT=off is set: near it garbage is collected more often, before
// the kernel ends the process. Where no limit can be read there is none.
func limitMemory() { _, _ = memlimit.Set() }

// Growing is a configuration that states by how many percent of what lives in it the heap
// may grow under load between two collections of garbage. Go's own is 100.
type Growing interface {
	Growth() int
}

// growHeap lets the heap grow by percent while collections follow each other within a
// second, and by Go's 100 at rest, until ctx ends: memory is spent for processor time
// only where there is a load. Where GOGC is set, that holds.
func growHeap(ctx context.Context, percent int) {
	if !grows(percent, os.LookupEnv) {
		return
	}
	var now clock.RealClock
	p := &pace{clock: now, percent: percent, last: now.Now(), set: func(percent int) { debug.SetGCPercent(percent) }}
	p.follow(ctx)
}

func grows(percent int, lookup func(name string) (string, bool)) bool {
	set, _ := lookup("GOGC")
	return percent > baseGCPercent && set == ""
}

// pace follows the collections of garbage.
type pace struct {
	clock   clock.PassiveClock
	percent int
	set     func(percent int)

	mu      sync.Mutex
	last    time.Time // of the last collection
	growing bool
}

// follow hears of each collection until ctx ends: it takes an object to which nobody
// refers.
func (p *pace) follow(ctx context.Context) {
	runtime.AddCleanup(&pace{}, func(p *pace) {
		p.collected(ctx.Err() != nil)
		if ctx.Err() == nil {
			p.follow(ctx)
		}
	}, p)
}

// collected hears of one collection; the last one ends the growth.
func (p *pace) collected(last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	since := now.Sub(p.last)
	p.last = now
	switch {
	case !p.growing && since < hurried && !last:
		p.growing = true
		p.set(p.percent)
	case p.growing && (since > idle || last):
		p.growing = false
		p.set(baseGCPercent)
	}
}
