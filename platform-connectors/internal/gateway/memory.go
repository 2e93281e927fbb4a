package gateway

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// nodeReceives bounds what the calls of one node hold while they are received, in bytes,
// unless one request alone is larger: a node that sends slowly holds no more.
const nodeReceives = 2 << 20

// Memory bounds the bytes of requests that a gateway holds, from before they are received
// until they are answered. Who waits is served in the order of coming.
type Memory struct {
	all *semaphore.Weighted
	// large is the part of all that requests of more than nodeReceives may have
	// together, so that a few of them never keep all others waiting.
	large *semaphore.Weighted
}

// NewMemory bounds the requests to so many bytes, at least MaxMessage.
func NewMemory(bytes int64) *Memory {
	return &Memory{all: semaphore.NewWeighted(bytes), large: semaphore.NewWeighted(max(bytes/2, MaxMessage))}
}

// Acquire waits for n bytes, at most MaxMessage, until ctx ends. The caller releases them.
func (m *Memory) Acquire(ctx context.Context, n int64) (release func(), err error) {
	isLarge := n > nodeReceives
	if isLarge {
		if err := m.large.Acquire(ctx, n); err != nil {
			return nil, err
		}
	}
	if err := m.all.Acquire(ctx, n); err != nil {
		if isLarge {
			m.large.Release(n)
		}
		return nil, err
	}
	return func() {
		m.all.Release(n)
		if isLarge {
			m.large.Release(n)
		}
	}, nil
}
