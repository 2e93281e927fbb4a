package delivery

import (
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Receiving says whether the receiver knows us: credentials and address.
func (d *Exporter) Receiving() (ok bool, detail string) {
	if why := d.breaker.ours(); why != "" {
		return false, why
	}
	if until, why, tripped := d.breaker.tripped(d.Clock.Now()); tripped {
		return true, fmt.Sprintf("pausing until %s: %s", until.UTC().Format(time.RFC3339), why)
	}
	return true, "no trouble"
}

// KeepsUp says whether the oldest undelivered record is young enough.
func (d *Exporter) KeepsUp() (ok bool, detail string) {
	lag := d.lag().Round(time.Second)
	if d.MaxLag > 0 && lag > d.MaxLag {
		return false, fmt.Sprintf("the oldest undelivered event is %s old, more than %s", lag, d.MaxLag)
	}
	return true, fmt.Sprintf("the oldest undelivered event is %s old", lag)
}

// lag is the age of the oldest record that is neither delivered nor buried; 0
// if there is none. The loop of the service is made before.
func (d *Exporter) lag() time.Duration {
	oldest := d.turn.oldest()
	d.service.Oldest(func(r record.Record) {
		if oldest.IsZero() || r.CreatedAt.Before(oldest) {
			oldest = r.CreatedAt
		}
	})
	if oldest.IsZero() {
		return 0
	}
	return max(0, d.Clock.Since(oldest))
}
