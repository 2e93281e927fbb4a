package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/retry"
)

// TestEvery: it begins after the first span, and ends with the context.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
		defer cancel()
		began := time.Now()
		var at []time.Duration
		retry.Every(ctx, clock.RealClock{}, time.Minute, func() { at = append(at, time.Since(began)) })
		if len(at) != 3 || at[0] != time.Minute || at[2] != 3*time.Minute || time.Since(began) != 3*time.Minute+time.Second {
			t.Errorf("called after %v, ended after %s", at, time.Since(began))
		}
	})
}

// TestWake: calls that nobody has taken yet are one, and none of them waits.
func TestWake(t *testing.T) {
	w := retry.NewWake()
	taken := func() int {
		n := 0
		for {
			select {
			case <-w:
				n++
			default:
				return n
			}
		}
	}
	if n := taken(); n != 0 {
		t.Errorf("nobody has called, and %d calls came", n)
	}
	for range 3 {
		w.Call()
	}
	if n := taken(); n != 1 {
		t.Errorf("of three calls %d came", n)
	}
	if w.Call(); taken() != 1 {
		t.Error("a call after the last one was taken did not come")
	}
}
