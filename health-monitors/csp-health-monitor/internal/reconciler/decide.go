package reconciler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// decide decides about every unfinished maintenance and saves what follows.
func (r *Reconciler) decide(ctx context.Context) error {
	machines, now := r.machines(), r.Clock.Now()
	r.reportContested(machines)
	r.Metrics.Waiting.Reset()
	var changed []maintenance.Event
	for _, id := range slices.Sorted(maps.Keys(r.mirror)) {
		e := r.mirror[id]
		v := r.verdict(ctx, e, facts(e, machines))
		if v.Step == lifecycle.Wait {
			r.Metrics.Waiting.WithLabelValues(string(v.Reason)).Inc()
			continue
		}
		r.Metrics.Decisions.WithLabelValues(string(v.Step), string(v.Reason)).Inc()
		e = lifecycle.Apply(e, v, r.Policy, now)
		r.Log.Info("maintenance evaluated", "id", id, "node", e.NodeName, "machine", e.ResourceID, "code", e.Code,
			"step", string(v.Step), "reason", string(v.Reason), "strategy", string(r.Policy.Strategy))
		changed = append(changed, e)
	}
	if len(changed) == 0 {
		return nil
	}
	crashpoint.Here(lifecycle.Agent + "/decided")
	err := r.save(ctx, changed, nil)
	crashpoint.Here(lifecycle.Agent + "/written")
	return err
}

// verdict decides about one maintenance. The kubelet is looked at only when a node would be
// released: until then it counts as alive.
func (r *Reconciler) verdict(ctx context.Context, e maintenance.Event, f lifecycle.Facts) lifecycle.Verdict {
	now := r.Clock.Now()
	f.Kubelet = kubelet.Alive
	v := lifecycle.Decide(e, f, r.Policy, now)
	if v.Step != lifecycle.Heal {
		return v
	}
	var err error
	if f.Kubelet, err = r.Kubelet(ctx, f.Node); err != nil {
		r.Log.Warn("kubelet liveness check failed, retrying in the next reconcile", "node", f.Node, "error", err)
		f.Kubelet = kubelet.Unknown
	}
	return lifecycle.Decide(e, f, r.Policy, now)
}

func facts(e maintenance.Event, machines Fleet) lifecycle.Facts {
	now, contested := machines.OfMachine(e.ResourceID)
	held, there := machines.Named(e.NodeName)
	return lifecycle.Facts{
		Known: machines.Known, Node: now.Name, Ready: now.Ready, Contested: contested,
		Other: e.NodeName != "" && there && held.Machine != "" && held.Machine != e.ResourceID,
	}
}

// settle saves what became of events.
func (r *Reconciler) settle(seqs []uint64, become func(maintenance.Event, time.Time) maintenance.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(r.ctx); err != nil {
		return err
	}
	now := r.Clock.Now()
	var changed []maintenance.Event
	var provider *maintenance.Provider
	for _, x := range r.queue.entries {
		w := r.waiting(x.id)
		if !slices.Contains(seqs, x.seq) || w == nil || w.Event.ID != x.eventID {
			continue
		}
		if x.id == ofProvider {
			p := r.provider
			p.Unreachable = reportedOf(*p.Unreachable, now)
			provider = &p
			continue
		}
		changed = append(changed, become(r.mirror[x.id], now))
		r.Metrics.Reported.WithLabelValues(string(w.Stage)).Inc()
	}
	if len(changed) == 0 && provider == nil {
		return nil
	}
	crashpoint.Here(lifecycle.Agent + "/acknowledged")
	err := r.save(r.ctx, changed, provider)
	crashpoint.Here(lifecycle.Agent + "/stamped")
	return err
}

// unreachable saves the fault of a provider that has not answered for a while. It is
// reported once, and about the node of this process: it belongs to no other.
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
	r.Log.Warn("provider poll failed, retrying", "csp", r.Origin.CSP, "since", r.failing)
	return r.save(ctx, nil, &provider)
}

// reachable is what is left of the fault when the provider answers.
func (r *Reconciler) reachable(u *maintenance.Unreachable) *maintenance.Unreachable {
	if u == nil || u.Reported == nil || u.Waiting != nil {
		return u // there is none, or it has to be reported first
	}
	next := *u
	next.Waiting = lifecycle.Reachable(r.Origin, *u, r.Clock.Now())
	return &next
}

// reportedOf is the fault after its event was taken, or refused; nil after its end.
func reportedOf(u maintenance.Unreachable, now time.Time) *maintenance.Unreachable {
	if u.Waiting.Stage == maintenance.Healthy {
		return nil
	}
	e := u.Waiting.Event
	u.Reported = &maintenance.Report{ID: e.ID, Strategy: e.ProcessingStrategy, At: now.UTC().Truncate(time.Microsecond)}
	u.Waiting = nil
	return &u
}

// Check asks the provider whether it can be read, before the first reading.
func (r *Reconciler) Check(ctx context.Context) {
	if err := r.Source.Check(ctx); err != nil {
		r.note("provider", fmt.Errorf("checking the permissions at %s: %w", r.Origin.CSP, err))
	}
}
