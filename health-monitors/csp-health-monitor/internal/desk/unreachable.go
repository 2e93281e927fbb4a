package desk

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
)

// unreachable books the fault of a provider that has not answered for a while. It is
// told once, and of the node of this process: it is nobody else's.
func (d *Desk) unreachable(ctx context.Context) error {
	if err := d.load(ctx); err != nil { // an acknowledgement may have failed meanwhile
		return err
	}
	now := d.Clock.Now()
	if d.failing.IsZero() {
		d.failing = now
	}
	if d.provider.Unreachable != nil || d.NodeName == "" || now.Sub(d.failing) < unreachableAfter {
		return nil
	}
	provider := d.provider
	provider.Unreachable = &maintenance.Unreachable{
		NodeName: d.NodeName, Since: d.failing.UTC().Truncate(time.Microsecond),
		Waiting: lifecycle.Unreachable(d.Place, d.NodeName, d.failing, now),
	}
	d.Log.Warn("the provider cannot be read", "csp", d.Place.CSP, "since", d.failing)
	return d.book(ctx, nil, &provider)
}

// reachable is what is left of the fault when the provider answers.
func (d *Desk) reachable(u *maintenance.Unreachable) *maintenance.Unreachable {
	if u == nil || u.Told == nil || u.Waiting != nil {
		return u // there is none, or it has to be told first
	}
	next := *u
	next.Waiting = lifecycle.Reachable(d.Place, *u, d.Clock.Now())
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
func (d *Desk) Check(ctx context.Context) {
	if err := d.Source.Check(ctx); err != nil {
		d.note("provider", fmt.Errorf("checking the rights at %s: %w", d.Place.CSP, err))
	}
}
