package delivery

import (
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Receiving reports whether the receiver knows us: credentials and address.
func (ex *Exporter) Receiving() (ok bool, detail string) {
	if why := ex.breaker.ownFailure(); why != "" {
		return false, why
	}
	if until, why, tripped := ex.breaker.tripped(ex.Clock.Now()); tripped {
		return true, fmt.Sprintf("pausing until %s: %s", until.UTC().Format(time.RFC3339), why)
	}
	return true, "no errors"
}

// KeepsUp reports whether the oldest undelivered record is young enough.
func (ex *Exporter) KeepsUp() (ok bool, detail string) {
	lag := ex.lag().Round(time.Second)
	if ex.MaxLag > 0 && lag > ex.MaxLag {
		return false, fmt.Sprintf("the oldest undelivered event is %s old, more than %s", lag, ex.MaxLag)
	}
	return true, fmt.Sprintf("the oldest undelivered event is %s old", lag)
}

// lag is the age of the oldest record that is neither delivered nor buried; 0
// if there is none. The loop of the service is made before.
func (ex *Exporter) lag() time.Duration {
	oldest := ex.turn.oldest()
	ex.service.Oldest(func(r record.Record) {
		if oldest.IsZero() || r.CreatedAt.Before(oldest) {
			oldest = r.CreatedAt
		}
	})
	if oldest.IsZero() {
		return 0
	}
	return max(0, ex.Clock.Since(oldest))
}
