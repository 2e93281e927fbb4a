package desk

import (
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// settle books what became of events.
func (d *Desk) settle(seqs []uint64, become func(maintenance.Event, time.Time) maintenance.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.load(d.life); err != nil {
		return err
	}
	now := d.Clock.Now()
	var changed []maintenance.Event
	var provider *maintenance.Provider
	for _, x := range d.queue.entries {
		w := d.waiting(x.id)
		if !slices.Contains(seqs, x.seq) || w == nil || w.Event.ID != x.telling {
			continue
		}
		if x.id == ofProvider {
			p := d.provider
			p.Unreachable = toldOf(*p.Unreachable, now)
			provider = &p
			continue
		}
		changed = append(changed, become(d.mirror[x.id], now))
		d.Metrics.Told.WithLabelValues(string(w.Stage)).Inc()
	}
	if len(changed) == 0 && provider == nil {
		return nil
	}
	crashpoint.Here(lifecycle.Agent + "/acknowledged")
	err := d.book(d.life, changed, provider)
	crashpoint.Here(lifecycle.Agent + "/stamped")
	return err
}
