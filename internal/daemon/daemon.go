// Package daemon runs one service process: flags and configuration, logs,
// probes and metrics before anything else, named tasks, real readiness,
// shutdown in reverse order and the exit code.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/crashloop"
)

// stopGrace is how long tasks and stop functions together have to end; it is
// below the 30 s that a pod has.
const stopGrace = 25 * time.Second

// Daemon is one running process, handed to the service's build function.
type Daemon struct {
	// Name of the service and Version of the build.
	Name, Version string
	Log           *slog.Logger
	// Clock is the wall clock; a test's build function may replace it.
	Clock clock.WithTicker
	// Registry is served on /metrics. In a process of several controllers it adds the
	// label controller.
	Registry prometheus.Registerer
	// Crashes is what the controllers of one process share to find the record that
	// kills it; nil where one runs alone.
	Crashes *crashloop.Process

	in     invocation  // for Reload
	failed func(error) // ends the other controllers of the process; may be nil

	ctx    context.Context // of all tasks; ends with the first failure or signal
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex
	built  bool
	named  []*task
	checks []check
	stops  []stop
	ended  chan struct{} // closed when the last task of a built daemon has ended
	closed bool          // ended is closed
}

type check struct {
	name  string
	probe func() (ok bool, detail string)
}

type stop struct {
	name string
	do   func(context.Context) error
}

type task struct {
	name  string
	state string // running, done or failed
	err   error
}

// Go starts a named task. The first task that fails ends the process with exit
// code 1; a task that returns nil is done. When every task is done, the
// process ends with exit code 0. run has to return soon after its context ends.
func (d *Daemon) Go(name string, run func(ctx context.Context) error) {
	t := &task{name: name, state: "running"}
	d.mu.Lock()
	d.named = append(d.named, t)
	d.mu.Unlock()
	d.tasks.Go(func() { d.finish(t, guard(d.ctx, run)) })
}

// Ready adds a check to /readyz: the process is ready when every check reports
// ok. detail is for people; it should name what is missing.
func (d *Daemon) Ready(name string, ask func() (ok bool, detail string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks = append(d.checks, check{name, ask})
}

// OnStop registers what is done after all tasks have ended, in reverse order of
// registration. Its context ends with the time that is left for the shutdown.
func (d *Daemon) OnStop(name string, do func(ctx context.Context) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops = append(d.stops, stop{name, do})
}

// guard turns a panic of a task into an error, so that the shutdown is orderly.
func guard(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, stack())
		}
	}()
	return run(ctx)
}

// finish records a task's end and ends the process if it is due.
func (d *Daemon) finish(t *task, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stopping := d.ctx.Err() != nil
	switch {
	case err == nil, stopping && errors.Is(err, context.Canceled):
		t.state = "done"
	case stopping:
		// The end was decided already; this failure may be its consequence.
		t.state, t.err = "failed", err
		d.Log.Warn("task failed while stopping", "task", t.name, "error", err)
	default:
		t.state, t.err = "failed", err
		d.fail(fmt.Errorf("task %q: %w", t.name, err))
	}
	d.endIfIdle()
}

// fail ends the process because of err.
func (d *Daemon) fail(err error) {
	d.cancel(err)
	if d.failed != nil {
		d.failed(err)
	}
}

// endIfIdle closes ended once the build is over and no task of at least one
// runs any more. The caller holds the lock.
func (d *Daemon) endIfIdle() {
	if !d.built || d.closed || len(d.named) == 0 {
		return
	}
	for _, t := range d.named {
		if t.state == "running" {
			return
		}
	}
	d.closed = true
	close(d.ended)
}

// run builds the service, waits for its end and shuts it down. ctx ends with
// the stop signal, which is not an error.
func (d *Daemon) run(ctx context.Context, build func(ctx context.Context) error) error {
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	defer d.cancel(nil)
	if err := guard(d.ctx, build); err != nil {
		if ctx.Err() == nil {
			d.fail(fmt.Errorf("starting: %w", err))
		}
		d.cancel(nil)
	} else {
		d.mu.Lock()
		d.built = true
		d.endIfIdle()
		d.mu.Unlock()
		d.Log.Info("service initialized", "version", d.Version)
	}
	select {
	case <-d.ctx.Done():
	case <-d.ended:
	}
	failure := context.Cause(d.ctx)
	grace := graceOf(failure)
	if ctx.Err() != nil && errors.Is(failure, context.Cause(ctx)) {
		failure = nil
		d.Log.Info("shutdown started", "why", whyOf(context.Cause(ctx)))
	}
	d.cancel(nil)
	return errors.Join(failure, d.shutdown(grace))
}

// graceful is an error that leaves less time for the shutdown, such as a lost
// lease, where another replica starts to act soon.
type graceful interface {
	error
	Grace() time.Duration
}

// graceOf is the time for the shutdown that a failure leaves.
func graceOf(failure error) time.Duration {
	if g, ok := errors.AsType[graceful](failure); ok {
		return min(stopGrace, g.Grace())
	}
	return stopGrace
}

// whyOf returns why the whole process ends.
func whyOf(cause error) string {
	if other, ok := errors.AsType[*otherFailed](cause); ok {
		return other.Error()
	}
	return "signal received"
}

// shutdown waits for the tasks and then undoes what was registered.
func (d *Daemon) shutdown(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), grace)
	defer cancel()
	var errs []error
	all := make(chan struct{})
	go func() { d.tasks.Wait(); close(all) }()
	select {
	case <-all:
	case <-ctx.Done():
		errs = append(errs, d.lateTasks(grace))
	}
	d.mu.Lock()
	stops := d.stops
	d.mu.Unlock()
	for _, s := range slices.Backward(stops) {
		if err := guard(ctx, s.do); err != nil {
			errs = append(errs, fmt.Errorf("stopping %q: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Daemon) lateTasks(grace time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var late []string
	for _, t := range d.named {
		if t.state == "running" {
			late = append(late, t.name)
		}
	}
	return fmt.Errorf("tasks %q did not end within %s", late, grace)
}
