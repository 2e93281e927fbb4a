// Package wake is the bell of the change feeds: it wakes every waiting feed
// that something may have changed. A ring carries nothing and may be lost or
// repeated; a feed reads the store to learn what happened.
package wake

import "sync"

// Bell wakes its subscribers; the zero value is ready.
type Bell struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}
}

// Subscribe returns a channel that holds a token after every ring since it was
// last read, and the function that ends the subscription.
func (b *Bell) Subscribe() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[chan struct{}]struct{}{}
	}
	b.subs[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, ch)
	}
}

// Ring wakes every subscriber; it never blocks.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
