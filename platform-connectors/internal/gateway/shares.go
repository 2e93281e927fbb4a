package gateway

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Shares bounds what one node brings and asks for at once, so that none keeps the store
// from the others. What it leaves in the store in a day is bounded by its quota.
type Shares struct {
	// PerSecond is what a node may bring in the long run, Burst at once; in bytes.
	PerSecond, Burst int64
	Clock            clock.PassiveClock

	mu sync.Mutex
	of map[string]share
}

// share is what a node has brought and not worked off yet.
type share struct {
	bytes int64
	at    time.Time
}

// Spend notes n bytes of a node; false says that it has brought too much before
// and has to wait, about how long.
func (s *Shares) Spend(node string, n int64) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	if s.of == nil {
		s.of = map[string]share{}
	}
	if _, known := s.of[node]; !known && len(s.of) >= maxPeers {
		for other, o := range s.of {
			if s.left(o, now) == 0 {
				delete(s.of, other)
			}
		}
	}
	bytes := s.left(s.of[node], now)
	if bytes >= s.Burst {
		return time.Duration((bytes-s.Burst)/s.PerSecond+1) * time.Second, false
	}
	s.of[node] = share{bytes + n, now}
	return 0, true
}

// left is what of a share is not worked off at a time.
func (s *Shares) left(o share, now time.Time) int64 {
	since := now.Sub(o.at)
	if since > time.Hour {
		return 0
	}
	return max(o.bytes-int64(since.Seconds()*float64(s.PerSecond)), 0)
}
