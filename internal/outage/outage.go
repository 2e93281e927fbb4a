// Package outage tells where a row of failures of the same work begins and ends, so
// that each is logged once.
package outage

import "sync"

// Outage is the row of failures until now. Its zero value has none. It is safe for
// concurrent use.
type Outage struct {
	mu  sync.Mutex
	err error
}

// Note takes the result of one try: whether a row of failures begins with it, or ends.
func (o *Outage) Note(err error) (begins, ends bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	begins, ends = err != nil && o.err == nil, err == nil && o.err != nil
	o.err = err
	return begins, ends
}

// Ready says whether the last try succeeded, and if not, why it failed. Before the
// first try it is ready.
func (o *Outage) Ready() (bool, string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false, o.err.Error()
	}
	return true, ""
}
