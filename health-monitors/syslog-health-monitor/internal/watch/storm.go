package watch

import (
	"errors"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/report"
)

// report appends an unhealthy event, or counts it in a storm of its kind; sent is
// false for one that nobody could ever send.
func (b *batch) report(e *protos.HealthEvent) (sent bool, err error) {
	out := []*protos.HealthEvent{e}
	if !b.m.Policy.EveryEvent {
		out = b.s.Storms.Take(b.m.Clock.Now(), e)
	}
	if len(out) == 0 {
		b.counted++
	}
	sent = true
	for _, one := range out {
		if sent, err = b.append(one); err != nil {
			return false, err
		}
	}
	if sent {
		b.occurred(e)
	}
	return sent, nil
}

// occurred notes what account counts once it is durable.
func (b *batch) occurred(e *protos.HealthEvent) { b.events = append(b.events, e) }

// reportCounted appends what stands for the events of a storm, a minute after the
// last time or when it is over. A full outbox is asked again.
func (m *Monitor) reportCounted() error {
	next := m.state.Storms.Clone()
	if len(next.Due(m.Clock.Now())) == 0 {
		return nil
	}
	err := m.commit(func(tx *report.Tx, s *state) error {
		t := batch{m: m, tx: tx, s: s}
		for _, e := range s.Storms.Due(m.Clock.Now()) {
			if _, err := t.append(e); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, report.ErrFull) {
		return nil
	}
	return err
}

// endStorms appends what is counted of a check, all with none, before something
// follows that ends its faults.
func (m *Monitor) endStorms(tx *report.Tx, s *state, check string) error {
	t := batch{m: m, tx: tx, s: s}
	for _, e := range s.Storms.End(m.Clock.Now(), check) {
		if _, err := t.append(e); err != nil {
			return err
		}
	}
	return nil
}
