package lease

import (
	"context"
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

// Fence returns a context for one irreversible call: it ends when this process
// would have to stop leading if it cannot renew its lease from now on, which is
// before another replica can lead. It has ended already if that time is past,
// so check Err right before the call. Without an election it is ctx, cancelable.
func Fence(ctx context.Context) (context.Context, context.CancelFunc) {
	lock, elected := ctx.Value(fenceKey{}).(*fencedLock)
	if !elected {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, lock.deadline())
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
func (l *fencedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(func() error { return l.Interface.Create(ctx, r) })
}

// Update takes, renews or releases the lease.
func (l *fencedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(func() error { return l.Interface.Update(ctx, r) })
}

// note counts from before the call: the API server may have written the renewal
// at any time since.
func (l *fencedLock) note(write func() error) error {
	sent := l.clock.Now()
	err := write()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.renewed = sent
	}
	return err
}

// release lets the lease go, if it is still ours, so that another replica need
// not wait for its end.
func (l *fencedLock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	record, _, err := l.Get(ctx)
	if err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	if record.HolderIdentity != l.Identity() {
		return nil
	}
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	if err := l.Update(ctx, *record); err != nil {
		return fmt.Errorf("releasing the lease: %w", err)
	}
	return nil
}

func (l *fencedLock) deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed.Add(l.renewDeadline)
}
