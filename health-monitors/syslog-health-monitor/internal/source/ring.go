package source

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// Bounds of the records that are read and not yet asked for. At either the ring
// is read no further, and the kernel keeps what fits into it: at 41,000 lines a
// second, as a driver writes when a GPU is lost, they hold more than a second.
const (
	recordsAhead = 64 << 10
	bytesAhead   = 16 << 20
)

// Pace at which a reader wakes who asks for its records.
const (
	wakeAt     = 512                   // records; at once
	wakeGather = 10 * time.Millisecond // after the first record of fewer
)

// pollsAtEnd is how often in a row, devicePollInterval apart, a device has to have nothing more
// until its newest record is believed to be the ring's: what follows from that reports
// lines a second time. The kernel shows a ring at once, and a stand-in for tests may not.
const pollsAtEnd = 3

// recordBytes holds the largest record that Linux hands out.
const recordBytes = 16 << 10

// readout is a record as the device gave it.
type readout struct {
	raw []byte
	at  time.Time // when it was read
	// live: the reader had waited for it, so that it was written at that time.
	live bool
}

// ringReader empties a device as fast as it fills, whatever the rest of the
// monitor is busy with.
type ringReader struct {
	dev       device
	clock     clock.PassiveClock
	wake      chan<- struct{}
	malformed func()
	done      chan struct{}

	mu         sync.Mutex
	spaceFreed sync.Cond // somebody has taken records, or closed
	ahead      []readout
	bytes      int
	emptyPolls int  // how often the device had nothing since the last record
	reachedEnd bool // the device had nothing once
	closed     bool
	err        error // why reading ended
}

func readRing(dev device, clk clock.PassiveClock, wake chan<- struct{}, malformed func()) *ringReader {
	r := &ringReader{dev: dev, clock: clk, wake: wake, malformed: malformed, done: make(chan struct{})}
	r.spaceFreed.L = &r.mu
	go r.run()
	return r
}

func (r *ringReader) run() {
	defer close(r.done)
	buf := make([]byte, recordBytes)
	for {
		waited := false
		n, err := r.dev.Next(buf, func() { waited = true; r.idle() })
		switch {
		case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EINTR):
			continue // overwritten: the next record's number shows how many
		case errors.Is(err, syscall.EINVAL):
			r.malformed() // larger than any record is; the device has passed it
			continue
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
			r.notify()
			return
		}
		if !r.append(buf[:n], waited) {
			return
		}
	}
}

// idle notes that the device has nothing more.
func (r *ringReader) idle() {
	r.mu.Lock()
	r.emptyPolls++
	wanted := !r.reachedEnd || r.emptyPolls == pollsAtEnd
	r.reachedEnd = true
	r.mu.Unlock()
	if wanted {
		r.notify()
	}
}

// append keeps a record; false means that the reader is closed.
func (r *ringReader) append(raw []byte, live bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for (len(r.ahead) >= recordsAhead || r.bytes >= bytesAhead) && !r.closed {
		r.spaceFreed.Wait()
	}
	if r.closed {
		return false
	}
	r.ahead = append(r.ahead, readout{append([]byte(nil), raw...), r.clock.Now(), live})
	r.bytes += len(raw)
	r.emptyPolls = 0
	switch len(r.ahead) {
	case 1:
		time.AfterFunc(wakeGather, r.notify)
	case wakeAt:
		r.notify()
	}
	return true
}

// notify wakes who asks for records.
func (r *ringReader) notify() {
	select {
	case r.wake <- struct{}{}:
	default: // signalled already
	}
}

// take gives up to limit records. Without any, looks is how often the device had none
// either since its last record. What was read before an error comes before the error.
func (r *ringReader) take(limit int) (out []readout, looks int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(limit, len(r.ahead))
	out = append(out, r.ahead[:n]...)
	for _, one := range out {
		r.bytes -= len(one.raw)
	}
	if r.ahead = r.ahead[n:]; len(r.ahead) == 0 {
		r.ahead = nil // the memory of a flood goes
	}
	if n > 0 {
		r.spaceFreed.Signal()
		return out, 0, nil
	}
	return nil, r.emptyPolls, r.err
}

func (r *ringReader) close() error {
	r.mu.Lock()
	r.closed = true
	r.spaceFreed.Signal()
	r.mu.Unlock()
	err := r.dev.Close()
	<-r.done
	return err
}
