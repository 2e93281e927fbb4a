package reconciler

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/time/rate"
)

// semaphore admits evictions of all nodes: a bounded number at once, a bounded
// number per second, and the nodes that wait in turn, so that one with many
// pods delays no other by more than its own turn.
type semaphore struct {
	limit *rate.Limiter

	mu    sync.Mutex
	free  int
	turns []string // nodes with somebody waiting, the next one first
	lines map[string][]chan struct{}
}

// newSemaphore admits inFlight at once and perSecond per second; 0 per second is
// what the API server bears.
func newSemaphore(inFlight int, perSecond float64) *semaphore {
	limit := rate.NewLimiter(rate.Inf, 0)
	if perSecond > 0 {
		limit = rate.NewLimiter(rate.Limit(perSecond), 1)
	}
	return &semaphore{limit: limit, free: max(inFlight, 1), lines: map[string][]chan struct{}{}}
}

// enter waits for the turn of the node and for the rate. A caller that entered calls
// leave.
func (s *semaphore) enter(ctx context.Context, node string) (leave func(), err error) {
	pass := s.queue(node)
	select {
	case <-pass:
	case <-ctx.Done():
		s.abandon(node, pass)
		return nil, context.Cause(ctx)
	}
	if err := s.limit.Wait(ctx); err != nil {
		s.leave()
		return nil, err
	}
	return s.leave, nil
}

func (s *semaphore) queue(node string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	pass := make(chan struct{})
	if len(s.lines[node]) == 0 {
		s.turns = append(s.turns, node)
	}
	s.lines[node] = append(s.lines[node], pass)
	s.admit()
	return pass
}

func (s *semaphore) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.admit()
}

// abandon gives a place up, or the pass if it came meanwhile.
func (s *semaphore) abandon(node string, pass chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.lines[node]
	i := slices.Index(line, pass)
	if i < 0 {
		s.free++
		s.admit()
		return
	}
	s.keep(node, slices.Delete(line, i, i+1))
	if _, waits := s.lines[node]; !waits {
		s.turns = slices.DeleteFunc(s.turns, func(n string) bool { return n == node })
	}
}

// admit lets the first of the next node in, and sends that node to the end.
func (s *semaphore) admit() {
	for s.free > 0 && len(s.turns) > 0 {
		node := s.turns[0]
		s.turns = s.turns[1:]
		line := s.lines[node]
		close(line[0])
		s.free--
		s.keep(node, line[1:])
		if len(line) > 1 {
			s.turns = append(s.turns, node)
		}
	}
}

func (s *semaphore) keep(node string, line []chan struct{}) {
	if len(line) == 0 {
		delete(s.lines, node)
		return
	}
	s.lines[node] = line
}
