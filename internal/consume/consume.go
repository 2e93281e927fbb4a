// Package consume turns a change feed into keyed work. The feed only notifies, and the
// store is the truth: a handler gets a key, mostly a node's name, and reads the facts
// again. The position that is committed is the lowest contiguous settled one, so that a
// crash repeats work but never skips it.
package consume

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/retry"
)

// Defaults and limits of a loop.
const (
	defaultStuckAfter = time.Minute
	defaultWorkers    = 8

	// Backoff per key after an error.
	minBackoff = 100 * time.Millisecond
	maxBackoff = time.Minute
	// minAgain keeps a handler that always waits for nothing from spinning.
	minAgain = 10 * time.Millisecond
	// minPark is the time of a Park without one.
	minPark = time.Second
	// commitEvery throttles commits.
	commitEvery = 100 * time.Millisecond
	// lastCommit bounds the commit at the shutdown.
	lastCommit = 5 * time.Second
	// errorGracePeriod is longer than the longest backoff of a source and its next try.
	errorGracePeriod = 2 * time.Minute
	// keyless is the key of deliveries whose key cannot be had.
	keyless = "\x00keyless"
	// maxUnsettled entries of the tracker stop the reading of the feed until some
	// settle. A key has at most two, however many deliveries it holds.
	maxUnsettled = 1 << 17
	// MaxItems and MaxItemBytes bound the deliveries that are read ahead of Items.
	MaxItems     = 4096
	MaxItemBytes = 64 << 20
)

// Feed is a resumable stream of deliveries. Next blocks for the next one and
// returns it with its position, which is opaque; after an error it is called
// again. Commit stores a position: a later feed resumes after it.
type Feed[R any] interface {
	Next(ctx context.Context) (R, string, error)
	Commit(ctx context.Context, position string) error
	Close() error
}

// Task is something that the leader does beside handling keys. One that fails is done
// again with backoff, and shows in readiness.
type Task struct {
	// Name in logs, metrics and readiness, such as "orphaned claims".
	Name string
	// Every is the pause between two times; 0 does it once, for as long as it takes.
	Every time.Duration
	Do    func(ctx context.Context) error
}

// Loop feeds keys to a handler: one key is handled by one worker at a time,
// different keys in parallel.
//
// The handler's answer determines what happens next: nil settles what was delivered
// for the key before the handler started; retry.Wait asks again soon with the
// position held; retry.Park settles and asks again later, at once when the
// key is enqueued; any other error, and a panic, is tried again with backoff, the
// position held.
type Loop[R any] struct {
	// Name of the loop in logs and metrics.
	Name string
	// Open opens the feed, from the position that is stored by then: it is called when
	// Run begins, which is when the process leads, again after an error, and Run closes
	// what it opened. Nil is a loop of backlog and sources only.
	Open func(ctx context.Context) (Feed[R], error)
	// Key of a delivery; a delivery with an empty key is settled unhandled.
	Key func(R) string
	// Handle observes, decides, acts and updates the status for one key. Its context ends
	// with the loop's.
	Handle func(ctx context.Context, key string) error
	// Items, instead of Handle, handles the deliveries of a key themselves, oldest
	// first, of which it returns how many are done: those are settled, the answer is
	// about the others, and nil asks for them again at once. The loop reads so many
	// ahead as fit into MaxItems and MaxItemBytes.
	Items func(ctx context.Context, key string, items []R) (done int, err error)
	// Weight is about what a delivery takes in memory, in bytes; needed by Items.
	Weight func(R) int
	// Pace is waited for before a delivery is taken in, such as for its turn at a
	// bounded rate; only the end of the context cuts it short. May be nil.
	Pace func(ctx context.Context, item R)
	// Backlog enqueues every key with open work; it runs to its end before the
	// feed is read, and again after an error. May be nil.
	Backlog func(ctx context.Context, enqueue func(key string)) error
	// Sources enqueue for the life of the loop, such as informers; a source that
	// fails is started again.
	Sources []func(ctx context.Context, enqueue func(key string)) error
	// Tasks are done while the loop runs, by the leader alone: what no news ask for.
	Tasks []Task
	// Workers is how many keys are handled at once; default 8.
	Workers int
	// Clock defaults to the wall clock.
	Clock clock.WithTicker
	// Log may be nil.
	Log *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// StuckAfter is how long work may be held before the loop is not ready;
	// default a minute.
	StuckAfter time.Duration

	// Vet finds a record that kills the process and dead-letters it; may be nil.
	Vet *Vetting[R]

	queue  workqueue.TypedRateLimitingInterface[string]
	dirty  retry.Wake // the committable position has moved
	shrunk retry.Wake // the tracker has shrunk

	limit int // of unsettled deliveries

	once sync.Once

	mu      sync.Mutex
	feed    Feed[R] // nil until it is open
	phase   phase
	tracker *tracker
	waiting backlog[R]
	pending map[string]pendingKey // keys whose last answer was not final
	trouble map[string]pendingKey // what fails: feed, backlog, commit, sources, tasks

	crashLoop *crashLoop // of the process, or one of this loop that remembers nothing
}

// phase of a loop's life.
type phase int

const (
	idle phase = iota // not started: a standby
	catchingUp
	live
	stopped
)

// pendingKey is something that does not come through: since when and why.
type pendingKey struct {
	since time.Time
	last  time.Time // the last failure of a source
	why   string
}

// over reports whether a source that failed has been quiet for so long that it
// works again: a feed without news reports nothing when it has recovered.
func (p pendingKey) over(now time.Time) bool { return now.Sub(p.last) > errorGracePeriod }

// Run works until ctx ends; an error then is the feed's that could not be closed. It is
// called once.
func (l *Loop[R]) Run(ctx context.Context) error {
	l.once.Do(l.start)
	l.enter(catchingUp)
	l.Metrics.attach(l)
	defer l.Metrics.attach(nil)
	l.join(ctx)
	var workers, sources, committer sync.WaitGroup
	l.employ(ctx, &workers)
	for i, source := range l.Sources {
		sources.Go(func() { l.repeat(ctx, fmt.Sprintf("source %d", i+1), func() error { return source(ctx, l.Enqueue) }) })
	}
	for _, t := range l.Tasks {
		sources.Go(func() { l.do(ctx, t) })
	}
	sources.Go(func() { l.read(ctx) })
	committing, stopCommitting := context.WithCancel(context.WithoutCancel(ctx))
	committer.Go(func() { l.commitLoop(committing) })

	<-ctx.Done()
	l.queue.ShutDown()
	sources.Wait()
	workers.Wait()
	stopCommitting()
	committer.Wait()
	l.enter(stopped)
	l.commitLast(ctx)
	l.leave(context.WithoutCancel(ctx))
	if feed := l.opened(); feed != nil {
		return feed.Close()
	}
	return nil
}

// employ starts the workers: in isolation mode one, and the others when that is
// over.
func (l *Loop[R]) employ(ctx context.Context, workers *sync.WaitGroup) {
	first := l.Workers
	if l.crashLoop.Isolates() {
		first = 1
	}
	start := func(n int) {
		for range n {
			workers.Go(func() { l.work(ctx) })
		}
	}
	start(first)
	if l.Vet != nil {
		workers.Go(func() {
			if l.crashLoop.Stable(ctx) {
				start(l.Workers - first)
			}
		})
	}
}

// start fills in the defaults and makes the state.
func (l *Loop[R]) start() {
	if l.Workers < 1 {
		l.Workers = defaultWorkers
	}
	if l.Clock == nil {
		l.Clock = clock.RealClock{}
	}
	if l.Log == nil {
		l.Log = slog.New(slog.DiscardHandler)
	}
	l.Log = l.Log.With("loop", l.Name)
	if l.StuckAfter <= 0 {
		l.StuckAfter = defaultStuckAfter
	}
	l.limit, l.crashLoop = maxUnsettled, &crashLoop{}
	if l.Vet != nil {
		l.crashLoop = &l.Vet.crashLoop
	}
	l.dirty, l.shrunk = retry.NewWake(), retry.NewWake()
	l.tracker, l.pending, l.trouble = newTracker(), map[string]pendingKey{}, map[string]pendingKey{}
	l.waiting.byKey = map[string]items[R]{}
	l.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: l.Clock},
	)
}

func (l *Loop[R]) enter(p phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = p
}

// commitLast commits what was settled since the last commit, although ctx has
// ended.
func (l *Loop[R]) commitLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCommit)
	defer cancel()
	if err := l.commit(ctx); err != nil {
		l.Log.Warn("final commit failed, uncommitted work is repeated at the next start", "error", err)
	}
}

// Enqueue asks for a key to be handled at once; a key that comes before Run is kept.
func (l *Loop[R]) Enqueue(key string) {
	l.once.Do(l.start)
	if key != "" {
		l.queue.Add(key)
	}
}
