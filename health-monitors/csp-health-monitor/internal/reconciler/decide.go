package reconciler

import (
	"context"
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/fleet"
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
		r.Log.Info("maintenance was decided about", "id", id, "node", e.NodeName, "machine", e.ResourceID, "code", e.Code,
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
// given back: until then it counts as alive.
func (r *Reconciler) verdict(ctx context.Context, e maintenance.Event, f lifecycle.Facts) lifecycle.Verdict {
	now := r.Clock.Now()
	f.Kubelet = kubelet.Alive
	v := lifecycle.Decide(e, f, r.Policy, now)
	if v.Step != lifecycle.Heal {
		return v
	}
	var err error
	if f.Kubelet, err = r.Kubelet(ctx, f.Node); err != nil {
		r.Log.Warn("reading whether a kubelet is alive failed, trying again in the next round", "node", f.Node, "error", err)
		f.Kubelet = kubelet.Unknown
	}
	return lifecycle.Decide(e, f, r.Policy, now)
}

func facts(e maintenance.Event, machines fleet.Fleet) lifecycle.Facts {
	now, contested := machines.OfMachine(e.ResourceID)
	held, there := machines.Named(e.NodeName)
	return lifecycle.Facts{
		Known: machines.Known, Node: now.Name, Ready: now.Ready, Contested: contested,
		Other: e.NodeName != "" && there && held.Machine != "" && held.Machine != e.ResourceID,
	}
}
