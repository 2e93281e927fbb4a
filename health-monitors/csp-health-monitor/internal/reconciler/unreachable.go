package reconciler

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
)

// unreachable saves the fault of a provider that has not answered for a while. It is
// told once, and of the node of this process: it is nobody else's.
func (r *Reconciler) unreachable(ctx context.Context) error {
	if err := r.load(ctx); err != nil { // an acknowledgement may have failed meanwhile
		return err
	}
	now := r.Clock.Now()
	if r.failing.IsZero() {
		r.failing = now
	}
	if r.provider.Unreachable != nil || r.NodeName == "" || now.Sub(r.failing) < unreachableAfter {
		return nil
	}
	provider := r.provider
	provider.Unreachable = &maintenance.Unreachable{
		NodeName: r.NodeName, Since: r.failing.UTC().Truncate(time.Microsecond),
		Waiting: lifecycle.Unreachable(r.Origin, r.NodeName, r.failing, now),
	}
	r.Log.Warn("the provider cannot be read", "csp", r.Origin.CSP, "since", r.failing)
	return r.save(ctx, nil, &provider)
}

// reachable is what is left of the fault when the provider answers.
func (r *Reconciler) reachable(u *maintenance.Unreachable) *maintenance.Unreachable {
	if u == nil || u.Told == nil || u.Waiting != nil {
		return u // there is none, or it has to be told first
	}
	next := *u
	next.Waiting = lifecycle.Reachable(r.Origin, *u, r.Clock.Now())
	return &next
}

// toldOf is the fault after its event was taken, or refused; nil after its end.
func toldOf(u maintenance.Unreachable, now time.Time) *maintenance.Unreachable {
	if u.Waiting.Stage == maintenance.Healthy {
		return nil
	}
	e := u.Waiting.Event
	u.Told = &maintenance.Telling{ID: e.ID, Strategy: e.ProcessingStrategy, At: now.UTC().Truncate(time.Microsecond)}
	u.Waiting = nil
	return &u
}

// Check asks the provider whether it can be read, before the first reading.
func (r *Reconciler) Check(ctx context.Context) {
	if err := r.Source.Check(ctx); err != nil {
		r.note("provider", fmt.Errorf("checking the rights at %s: %w", r.Origin.CSP, err))
	}
}
