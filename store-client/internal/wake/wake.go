// Package wake is the signal of the change feeds: it wakes every waiting feed
// that something may have changed. A wake-up carries nothing and may be lost or
// repeated; a feed reads the store to learn what happened.
package wake

import "sync"

// Signal wakes its subscribers; the zero value is ready.
type Signal struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}
}

// Subscribe returns a channel that holds a token after every wake-up since it was
// last read, and the function that ends the subscription.
func (s *Signal) Subscribe() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs == nil {
		s.subs = map[chan struct{}]struct{}{}
	}
	s.subs[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, ch)
	}
}

// Notify wakes every subscriber; it never blocks.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
