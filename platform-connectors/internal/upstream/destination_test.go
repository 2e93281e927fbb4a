package upstream

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/store-client/store"
)

// closing is a store that knows only whether it was closed.
type closing struct {
	store.Store
	closed bool
}

func (s *closing) Close() error {
	s.closed = true
	return nil
}

func TestStoreIsOpenedWhenItCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, s := 0, &closing{}
		r := NewLazy(func(context.Context) (Destination, error) {
			if tries++; tries < 3 {
				return nil, errors.New("no such database")
			}
			return s, nil
		}, clock.RealClock{}, slog.New(slog.DiscardHandler))
		if err := r.Close(); err != nil {
			t.Errorf("closing what was never opened: %v", err)
		}
		go func() {
			if err := r.Run(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if _, ok := r.Opened(); ok {
			t.Error("open after the first try")
		}
		if ok, detail := r.Ready(); ok || detail != "no such database" {
			t.Errorf("Ready = %v, %q", ok, detail)
		}
		got, err := r.Wait(t.Context())
		if err != nil || got != s || tries != 3 {
			t.Errorf("Wait = %v, %v after %d tries", got, err, tries)
		}
		if ok, _ := r.Ready(); !ok {
			t.Error("not ready with an open store")
		}
		if err := r.Close(); err != nil || !s.closed {
			t.Errorf("Close = %v, closed %v", err, s.closed)
		}
	})
}

func TestWaitingForTheStoreEndsWithItsContext(t *testing.T) {
	r := NewLazy(nil, clock.RealClock{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v", err)
	}
}
