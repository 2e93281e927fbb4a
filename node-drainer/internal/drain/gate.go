package drain

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/time/rate"
)

// gate admits evictions of all nodes: a bounded number at once, a bounded
// number per second, and the nodes that wait in turn, so that one with many
// pods delays no other by more than its own turn.
type gate struct {
	limit *rate.Limiter

	mu    sync.Mutex
	free  int
	turns []string // nodes with somebody waiting, the next one first
	lines map[string][]chan struct{}
}

// newGate admits inFlight at once and perSecond per second; 0 per second is
// what the API server bears.
func newGate(inFlight int, perSecond float64) *gate {
	limit := rate.NewLimiter(rate.Inf, 0)
	if perSecond > 0 {
		limit = rate.NewLimiter(rate.Limit(perSecond), 1)
	}
	return &gate{limit: limit, free: max(inFlight, 1), lines: map[string][]chan struct{}{}}
}

// enter waits for the turn of the node and for the rate. Whoever entered calls
// leave.
func (g *gate) enter(ctx context.Context, node string) (leave func(), err error) {
	pass := g.queue(node)
	select {
	case <-pass:
	case <-ctx.Done():
		g.abandon(node, pass)
		return nil, context.Cause(ctx)
	}
	if err := g.limit.Wait(ctx); err != nil {
		g.leave()
		return nil, err
	}
	return g.leave, nil
}

func (g *gate) queue(node string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	pass := make(chan struct{})
	if len(g.lines[node]) == 0 {
		g.turns = append(g.turns, node)
	}
	g.lines[node] = append(g.lines[node], pass)
	g.admit()
	return pass
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	g.admit()
}

// abandon gives a place up, or the pass if it came meanwhile.
func (g *gate) abandon(node string, pass chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	line := g.lines[node]
	i := slices.Index(line, pass)
	if i < 0 {
		g.free++
		g.admit()
		return
	}
	g.keep(node, slices.Delete(line, i, i+1))
	if _, waits := g.lines[node]; !waits {
		g.turns = slices.DeleteFunc(g.turns, func(n string) bool { return n == node })
	}
}

// admit lets the first of the next node in, and sends that node to the end.
func (g *gate) admit() {
	for g.free > 0 && len(g.turns) > 0 {
		node := g.turns[0]
		g.turns = g.turns[1:]
		line := g.lines[node]
		close(line[0])
		g.free--
		g.keep(node, line[1:])
		if len(line) > 1 {
			g.turns = append(g.turns, node)
		}
	}
}

func (g *gate) keep(node string, line []chan struct{}) {
	if len(line) == 0 {
		delete(g.lines, node)
		return
	}
	g.lines[node] = line
}
