package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/retry"
)

// retryAfter is how long a failed step waits for its next try.
const retryAfter = 200 * time.Millisecond

// Metrics of the plugin.
type Metrics struct{ entries *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{entries: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nvsentinel_csp_plugin_kwok_entries_total", Help: "Calls recorded by the simulated provider, by effect.",
	}, []string{"effect"})}
	r.MustRegister(m.entries)
	return m
}

// Run carries out the accepted reboots until ctx ends, beginning with those
// that the journal left open.
func (p *Plugin) Run(ctx context.Context) error {
	p.mu.Lock()
	p.running = ctx
	for node, line := range p.lines {
		if len(line) > 0 {
			p.work(node)
		}
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.running = nil // no further worker
	p.mu.Unlock()
	p.workers.Wait()
	return nil
}

// work starts the worker of a node's line. The caller holds the lock.
func (p *Plugin) work(node string) {
	if ctx := p.running; ctx != nil {
		p.workers.Go(func() {
			for p.next(ctx, node) {
			}
		})
	}
}

// next carries out the first job of a line and reports whether there is another.
func (p *Plugin) next(ctx context.Context, node string) bool {
	p.mu.Lock()
	j := p.lines[node][0]
	p.mu.Unlock()
	if !p.carryOut(ctx, j) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines[node] = p.lines[node][1:]
	return len(p.lines[node]) > 0
}

// carryOut carries out one job from its state in the journal; false means that the plugin
// stops first.
func (p *Plugin) carryOut(ctx context.Context, j *job) bool {
	for {
		err := p.course(ctx, j)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			return true
		case errors.Is(err, errNodeDeleted):
			err = p.advance(j, NodeGone)
			if err == nil {
				return true
			}
		}
		p.Log.Warn("request blocked, retrying", "node", j.Node, "request", j.RequestID, "error", err)
		if !retry.Sleep(ctx, p.Clock, retryAfter) {
			return false
		}
	}
}

// course is a request step by step; every step may be repeated. What stands in
// line behind a termination finds no machine.
func (p *Plugin) course(ctx context.Context, j *job) error {
	p.mu.Lock()
	gone := p.terminated[j.UID]
	p.mu.Unlock()
	switch {
	case gone:
		return errNodeDeleted
	case j.Verb == verbTerminate:
		return p.terminate(ctx, j)
	}
	return p.reboot(ctx, j)
}

// terminate takes the power for good; a while later there is no such machine.
func (p *Plugin) terminate(ctx context.Context, j *job) error {
	if err := p.down(ctx, j); err != nil {
		return err
	}
	if j.stall {
		return p.stalled(ctx, j)
	}
	return p.advance(j, Terminated)
}

// reboot takes the power, lets time pass and gives it back.
func (p *Plugin) reboot(ctx context.Context, j *job) error {
	if !j.rebooted {
		if err := p.down(ctx, j); err != nil {
			return err
		}
		if j.stall {
			return p.stalled(ctx, j)
		}
		hook, err := p.Machines.boot(ctx, j.Node, j.BootID)
		if hook != nil {
			p.Log.Warn("reboot hook failed", "node", j.Node, "error", hook)
		}
		if err != nil {
			return err
		}
		if err := p.advance(j, Rebooted); err != nil {
			return err
		}
	}
	if err := p.Machines.power(ctx, j.Node, true); err != nil {
		return err
	}
	return p.advance(j, Completed)
}

// down takes the power and lets the time pass, counted from the first try.
func (p *Plugin) down(ctx context.Context, j *job) error {
	if err := p.Machines.power(ctx, j.Node, false); err != nil {
		return err
	}
	if j.offAt.IsZero() {
		if err := p.advance(j, PoweredOff); err != nil {
			return err
		}
	}
	if !retry.Sleep(ctx, p.Clock, j.offAt.Add(p.RebootTime).Sub(p.Clock.Now())) {
		return ctx.Err()
	}
	return nil
}

// stalled keeps the power off until another reboot is asked for.
func (p *Plugin) stalled(ctx context.Context, j *job) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-j.replaced:
		return p.advance(j, Superseded)
	}
}

// advance writes the next effect of a job into the journal.
func (p *Plugin) advance(j *job, effect Effect) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := j.Entry
	e.Effect = effect
	if err := p.write(&e); err != nil {
		return err
	}
	p.progress(j, e)
	return nil
}
