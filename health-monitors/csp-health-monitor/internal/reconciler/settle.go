package reconciler

import (
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// settle saves what became of events.
func (r *Reconciler) settle(seqs []uint64, become func(maintenance.Event, time.Time) maintenance.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(r.life); err != nil {
		return err
	}
	now := r.Clock.Now()
	var changed []maintenance.Event
	var provider *maintenance.Provider
	for _, x := range r.queue.entries {
		w := r.waiting(x.id)
		if !slices.Contains(seqs, x.seq) || w == nil || w.Event.ID != x.telling {
			continue
		}
		if x.id == ofProvider {
			p := r.provider
			p.Unreachable = toldOf(*p.Unreachable, now)
			provider = &p
			continue
		}
		changed = append(changed, become(r.mirror[x.id], now))
		r.Metrics.Told.WithLabelValues(string(w.Stage)).Inc()
	}
	if len(changed) == 0 && provider == nil {
		return nil
	}
	crashpoint.Here(lifecycle.Agent + "/acknowledged")
	err := r.save(r.life, changed, provider)
	crashpoint.Here(lifecycle.Agent + "/stamped")
	return err
}
