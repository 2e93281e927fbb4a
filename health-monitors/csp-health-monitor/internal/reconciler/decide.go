package reconciler

import (
	"context"
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/fleet"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// decide decides about every unfinished maintenance and saves what follows.
func (r *Reconciler) decide(ctx context.Context) error {
	machines, now := r.machines(), r.Clock.Now()
	r.reportContested(machines)
	r.Metrics.Waiting.Reset()
	var changed []maintenance.Event
	for _, id := range slices.Sorted(maps.Keys(r.mirror)) {
		e := r.mirror[id]
		v := lifecycle.Decide(e, facts(e, machines), r.Policy, now)
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

func facts(e maintenance.Event, machines fleet.Fleet) lifecycle.Facts {
	now, contested := machines.OfMachine(e.ResourceID)
	held, there := machines.Named(e.NodeName)
	return lifecycle.Facts{
		Known: machines.Known, Node: now.Name, Ready: now.Ready, Contested: contested,
		Other: e.NodeName != "" && there && held.Machine != "" && held.Machine != e.ResourceID,
	}
}
