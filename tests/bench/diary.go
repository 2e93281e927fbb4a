package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// diary holds when each thing was first seen.
type diary struct {
	mu      sync.Mutex
	at      map[string]time.Time
	changed chan struct{}
}

func newDiary() *diary { return &diary{at: map[string]time.Time{}, changed: make(chan struct{})} }

// note writes an entry unless there is one.
func (d *diary) note(key string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.at[key]; !known {
		d.at[key] = at
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

// forget removes entries.
func (d *diary) forget(keys ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range keys {
		delete(d.at, k)
	}
}

// await waits until every key was noted and returns when the last one was.
func (d *diary) await(ctx context.Context, limit time.Duration, keys ...string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last time.Time
	for {
		d.mu.Lock()
		for len(keys) > 0 && !d.at[keys[0]].IsZero() {
			if at := d.at[keys[0]]; at.After(last) {
				last = at
			}
			keys = keys[1:]
		}
		bell := d.changed
		d.mu.Unlock()
		if len(keys) == 0 {
			return last, nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for %q and up to %d others: %w", keys[0], len(keys)-1, ctx.Err())
		}
	}
}

// when returns when each key was first seen; all of them must have been.
func (d *diary) when(keys ...string) []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]time.Time, len(keys))
	for i, k := range keys {
		out[i] = d.at[k]
	}
	return out
}
