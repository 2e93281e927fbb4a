package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/retry"
)

func TestFor(t *testing.T) {
	for name, tt := range map[string]struct{ wait, end, took time.Duration }{
		"the whole time": {time.Minute, time.Hour, time.Minute},
		"until the end":  {time.Hour, time.Minute, time.Minute},
		"not at all":     {0, time.Minute, 0},
		"ended before":   {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), tt.end)
				defer cancel()
				goesOn := retry.Sleep(ctx, clock.RealClock{}, tt.wait)
				if took := time.Since(began); took != tt.took || goesOn != (ctx.Err() == nil) || goesOn != (tt.wait < tt.end) {
					t.Errorf("it took %s and said %v, want %s", took, goesOn, tt.took)
				}
			})
		})
	}
}
