package kube

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// truth is how far a machine's clock may be off the API server's time before
// that one is taken; the server's answers tell it in whole seconds.
const truth = 2 * time.Second

// serverTime is the API server's time, by the Date of its answers and the time
// that has passed since, whatever the wall clock of this machine does.
type serverTime struct {
	mu      sync.Mutex
	date    time.Time // of the last answer
	arrived time.Time // with the monotonic clock's reading
}

// watch notes the Date of every answer that rc's clients get.
func (s *serverTime) watch(rc *rest.Config) {
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{next, s} })
}

type dated struct {
	next http.RoundTripper
	time *serverTime
}

// RoundTrip passes a request on and notes when its answer was given.
func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := time.Now() //nolint:forbidigo // measures this machine's own clock
	answer, err := d.next.RoundTrip(r)
	if err == nil {
		d.time.note(answer.Header.Get("Date"), asked, time.Now()) //nolint:forbidigo // measures this machine's own clock
	}
	return answer, err
}

// note takes an answer's Date, unless the answer took so long that nobody knows
// when it was given, or the process stood still meanwhile.
func (s *serverTime) note(date string, asked, arrived time.Time) {
	at, err := http.ParseTime(date)
	if err != nil || arrived.Sub(asked) > truth {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.date, s.arrived = at.Add(time.Second/2), arrived // between the two seconds
}

// now is own, unless it is further off the server's time than that is known.
func (s *serverTime) now(own time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.date.IsZero() {
		return own
	}
	server := s.date.Add(time.Since(s.arrived)) //nolint:forbidigo // measures this machine's own clock
	if off := own.Sub(server); off > truth || off < -truth {
		return server
	}
	return own
}

// Clock is a clock of the whole cluster: own, held to the API server's time. What
// the control services stamp, and compare with each other's stamps and the API
// server's (a pod's end, an object's creation), is then of one clock: one
// machine's wrong clock neither cuts a wait short nor draws it out. Timers and
// tickers are own's.
func (c *Client) Clock(own clock.WithTicker) clock.WithTicker {
	return clusterClock{WithTicker: own, server: c.server}
}

type clusterClock struct {
	clock.WithTicker
	server *serverTime
}

// Now is the time of the API server, or own as long as that has not answered.
func (c clusterClock) Now() time.Time { return c.server.now(c.WithTicker.Now()) }

// Since is the time that has passed since t.
func (c clusterClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
