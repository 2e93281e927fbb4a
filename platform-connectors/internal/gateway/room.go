package gateway

import (
	"context"
	"sync"
)

// Room bounds the bytes that are worked on at the same time. Who waits is served
// in the order of coming.
type Room struct {
	mu      sync.Mutex
	free    int64
	most    int64
	waiting []*wish
}

type wish struct {
	n     int64
	given chan struct{}
}

// NewRoom returns a room of so many bytes.
func NewRoom(bytes int64) *Room { return &Room{free: bytes, most: bytes} }

// Take waits for n bytes, all of the room if it is smaller.
func (r *Room) Take(ctx context.Context, n int64) error {
	n = min(n, r.most)
	r.mu.Lock()
	if len(r.waiting) == 0 && r.free >= n {
		r.free -= n
		r.mu.Unlock()
		return nil
	}
	w := &wish{n, make(chan struct{})}
	r.waiting = append(r.waiting, w)
	r.mu.Unlock()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-w.given:
		return nil // meanwhile
	default:
	}
	for i, other := range r.waiting {
		if other == w {
			r.waiting = append(r.waiting[:i:i], r.waiting[i+1:]...)
			break
		}
	}
	r.serve()
	return ctx.Err()
}

// Give gives back what was taken.
func (r *Room) Give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += min(n, r.most)
	r.serve()
}

func (r *Room) serve() {
	for len(r.waiting) > 0 && r.free >= r.waiting[0].n {
		r.free -= r.waiting[0].n
		close(r.waiting[0].given)
		r.waiting = r.waiting[1:]
	}
}
