package journey

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressIsNotAbandoned: a trip that takes longer than its limit, step by step,
// is waited for, and one that stands still is not.
func TestProgressIsNotAbandoned(t *testing.T) {
	for name, c := range map[string]struct {
		steps int           // that the faults take
		every time.Duration // for one
		ends  bool
	}{
		"soon":          {2, time.Second, true},
		"slowly":        {10, 50 * time.Second, true},
		"stands still":  {0, time.Hour, false},
		"stops halfway": {3, 50 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, trip := time.Now(), &scenarioRun{limit: time.Minute}
				err := trip.until(t.Context(), "the end", func(context.Context) (bool, error) {
					at := min(int(time.Since(began)/c.every), c.steps)
					trip.moved.Store(fmt.Sprint(at))
					return at == c.steps && c.ends, nil
				})
				if (err == nil) != c.ends {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
