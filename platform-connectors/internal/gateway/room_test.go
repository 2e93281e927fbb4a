package gateway

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestRoom: who waits is served in the order of coming, a large one is not
// overtaken by small ones, and who gives up takes nothing.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRoom(10)
		take := func(ctx context.Context, n int64) <-chan error {
			done := make(chan error, 1)
			go func() { done <- r.Take(ctx, n) }()
			synctest.Wait()
			return done
		}
		served := func(c <-chan error) bool {
			synctest.Wait()
			return len(c) == 1
		}
		if err := r.Take(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		impatient, large, small := take(ctx, 9), take(t.Context(), 100), take(t.Context(), 1)
		if served(impatient) || served(large) || served(small) {
			t.Fatal("more was given than there is")
		}
		cancel()
		if err := <-impatient; err == nil {
			t.Error("who gave up was served")
		}
		if served(small) {
			t.Error("a small one overtook a large one")
		}
		r.Give(6)
		if !served(large) || served(small) {
			t.Error("the large one was not served first")
		}
		r.Give(100)
		if !served(small) {
			t.Error("the small one was not served")
		}
		r.Give(1)
		if r.free != 10 {
			t.Errorf("%d of 10 are free at the end", r.free)
		}
	})
}
