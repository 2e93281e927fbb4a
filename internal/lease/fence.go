package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// releaseLimit bounds the release of a lease.
const releaseLimit = 2 * time.Second

// fenceKey finds the lock of a term in its context.
type fenceKey struct{}

// Fence returns a context for work that no other replica may do at the same
// time: it ends when this process would have to stop leading if it cannot renew
// its lease from now on, which is before another replica can lead. Each renewal
// moves that end on, so that work may last longer than one lease; the context
// therefore has no deadline of its own, and what waits for a server needs one
// beside it. It has ended already if the time is past, so check Err right before
// an irreversible call. Without an election it is ctx, cancelable.
func Fence(ctx context.Context) (context.Context, context.CancelFunc) {
	lock, elected := ctx.Value(fenceKey{}).(*fencedLock)
	if !elected {
		return context.WithCancel(ctx)
	}
	base, cancel := context.WithCancelCause(ctx)
	f := &fence{Context: base, lock: lock, end: cancel}
	f.watch()
	return f, func() { f.release() }
}

// FenceCall is Fence for one call whose deadline travels with it: the far side
// stops at the end that is known now, although this process may be frozen then.
func FenceCall(ctx context.Context) (context.Context, context.CancelFunc) {
	lock, elected := ctx.Value(fenceKey{}).(*fencedLock)
	if !elected {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, lock.deadline())
}

// fence is a context that ends with the term that the lease's last renewal gave.
type fence struct {
	context.Context
	lock *fencedLock
	end  context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
}

// Err implements context.Context. It reads the clock, because a process that was
// stopped goes on before its timers do.
func (f *fence) Err() error {
	if f.Context.Err() == nil && f.lock.left() <= 0 {
		f.end(context.DeadlineExceeded)
	}
	if errors.Is(context.Cause(f.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return f.Context.Err()
}

// watch ends the fence, or looks again when the present term ends.
func (f *fence) watch() {
	left := f.lock.left()
	if left <= 0 {
		f.end(context.DeadlineExceeded)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Context.Err() == nil {
		f.timer = time.AfterFunc(left, f.watch)
	}
}

func (f *fence) release() {
	f.end(nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
}

// fencedLock notes when the lease was renewed last.
type fencedLock struct {
	resourcelock.Interface
	clock         clock.WithTicker
	renewDeadline time.Duration

	mu      sync.Mutex
	renewed time.Time // when the last successful renewal was sent
}

// Create takes a lease that does not exist.
func (f *fencedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return f.note(func() error { return f.Interface.Create(ctx, r) })
}

// Update takes, renews or releases the lease.
func (f *fencedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return f.note(func() error { return f.Interface.Update(ctx, r) })
}

// note counts from before the call: the API server may have written the renewal
// at any time since.
func (f *fencedLock) note(write func() error) error {
	sent := f.clock.Now()
	err := write()
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.renewed = sent
	}
	return err
}

// release lets the lease go, if it is still ours, so that another replica need
// not wait for its end.
func (f *fencedLock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	record, _, err := f.Get(ctx)
	if err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	if record.HolderIdentity != f.Identity() {
		return nil
	}
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	if err := f.Update(ctx, *record); err != nil {
		return fmt.Errorf("releasing the lease: %w", err)
	}
	return nil
}

// left is how long this process leads without another renewal.
func (f *fencedLock) left() time.Duration { return f.deadline().Sub(f.clock.Now()) }

func (f *fencedLock) deadline() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.renewed.Add(f.renewDeadline)
}
