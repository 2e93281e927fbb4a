// Package watch is the loop of the object monitor: it keeps the objects that the
// policies need, evaluates the policies when an object changes, when time alone
// changes an answer, and once per resync period, and keeps what follows.
package watch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/internal/checkpoint"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Bounds of the wait before an object that could not be dealt with is tried
// again.
const (
	retryMin = 200 * time.Millisecond
	retryMax = time.Minute
)

// Monitor evaluates policies. Its fields are set before Run.
type Monitor struct {
	Config     *rest.Config
	Policies   *Policies
	Checkpoint *checkpoint.Checkpoint
	Publisher  *report.Publisher
	// Strategy is that of policies that set none.
	Strategy record.Strategy
	// Resync is how long an answer stands at most.
	Resync time.Duration
	// Workers is how many objects are evaluated at once.
	Workers int
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics

	current atomic.Pointer[cluster]
}

// Ready reports whether the kinds are watched, and which are not.
func (m *Monitor) Ready() (bool, string) {
	if c := m.current.Load(); c != nil {
		return c.ready()
	}
	return true, "standby, another replica leads"
}

// Run acts as the leader until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	if err := m.Checkpoint.Load(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var tasks sync.WaitGroup
	for _, run := range []func(context.Context) error{m.Checkpoint.Run, m.Publisher.Run, m.generations} {
		tasks.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	tasks.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// generations evaluates one set of policies after the other.
func (m *Monitor) generations(ctx context.Context) error {
	for ctx.Err() == nil {
		set, changed := m.Policies.Current()
		one, stop := context.WithCancel(ctx)
		release := context.AfterFunc(afterClose(one, changed), stop)
		err := m.generation(one, set)
		release()
		stop()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// afterClose is a context that ends when changed is closed, or with ctx.
func afterClose(ctx context.Context, changed <-chan struct{}) context.Context {
	out, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}()
	return out
}

// generation is the evaluation of one set of policies.
type generation struct {
	*Monitor
	objects *cluster
	queue   workqueue.TypedRateLimitingInterface[item]
	later   backlog
	turns   turns
	warned  sync.Map // policy and failure that were logged
}

func (m *Monitor) generation(ctx context.Context, set *policy.Set) error {
	objects, err := newCluster(m.Config, set)
	if err != nil {
		return err
	}
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[item](retryMin, min(retryMax, m.Resync))
	g := &generation{Monitor: m, objects: objects, queue: workqueue.NewTypedRateLimitingQueueWithConfig(limit,
		workqueue.TypedRateLimitingQueueConfig[item]{Clock: m.Clock})}
	g.later = backlog{queue: g.queue, short: m.Workers}
	g.turns = newTurns(m.Clock, m.Resync)
	objects.clock, objects.log, objects.metrics, objects.enqueue, objects.filled = m.Clock, m.Log, m.Metrics, g.queue.Add, g.filled
	m.current.Store(objects)
	m.Policies.finder.Store(objects)
	g.dropped(set)
	var tasks sync.WaitGroup
	for range m.Workers {
		tasks.Go(func() { g.work(ctx) })
	}
	tasks.Go(func() { g.turns.run(g.later.add) })
	objects.run(ctx)
	g.turns.queue.ShutDown()
	g.queue.ShutDown()
	tasks.Wait()
	return nil
}

// dropped recovers the open faults of policies that are not there any more, or
// that are about another kind or another namespace now.
func (g *generation) dropped(set *policy.Set) {
	policies := map[string]*policy.Policy{}
	for _, p := range set.Policies {
		policies[p.Name] = p
	}
	for _, key := range g.Checkpoint.Open() {
		if p := policies[key.Policy]; p != nil && covers(p, key) {
			continue
		}
		if _, err := g.Checkpoint.Observe(machine.EvaluationResult{Key: key, Observation: machine.Dropped, At: g.Clock.Now()}); err != nil {
			g.Log.Error("recovery for a removed policy failed", "policy", key.Policy, "object", key.Object, "error", err)
			continue
		}
		g.Log.Info("fault of a removed policy recovered", "policy", key.Policy, "object", key.Object)
	}
}

// covers reports whether a policy is about the object of an open fault.
func covers(p *policy.Policy, key machine.Key) bool {
	namespace, _ := split(key.Object)
	return typeOf(p.Kind) == key.Type && (p.Namespace == "" || p.Namespace == namespace)
}

// filled looks at every object of a kind once its cache is filled, and at those
// that are gone since the last leader acted. What other kinds look up there may
// have an answer now, so that they are looked at too.
func (g *generation) filled(kind schema.GroupVersionKind) {
	if !g.objects.set.LookedUp(kind) {
		g.rescan(kind)
		return
	}
	for _, k := range g.objects.set.Kinds() {
		g.rescan(k)
	}
}

// rescan looks at every object of a kind, those of open faults included.
func (g *generation) rescan(kind schema.GroupVersionKind) {
	if len(g.objects.set.Of(kind)) == 0 || !g.objects.isSynced(kind) {
		return
	}
	all := g.objects.list(kind)
	for _, key := range g.Checkpoint.Open() {
		if key.Type == typeOf(kind) {
			namespace, name := split(key.Object)
			all = append(all, newItem(kind, namespace, name))
		}
	}
	g.later.add(all)
}
