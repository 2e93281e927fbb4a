package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nvidia/nvsentinel/internal/controller"
)

// TestWatchWaits: it reports why it is not ready, asks again, and ends with ctx or with
// an error that waiting does not fix. What follows when it can go on, the services test
// on a real API server.
func TestWatchWaits(t *testing.T) {
	fatal := errors.New("another one runs")
	for name, tt := range map[string]struct {
		unserved []string // at each look; the last one stays
		manager  error
		want     error
		output   []string
	}{
		"not served":         {[]string{"Thing is not served"}, nil, nil, []string{"synced", "Thing is not served"}},
		"another reason":     {[]string{"a", "a", "b"}, nil, nil, []string{"synced", "a", "b"}},
		"watched in vain":    {[]string{"a", ""}, errors.New("refused"), nil, []string{"synced", "a", "things cannot be watched: refused"}},
		"what is not mended": {[]string{"a", ""}, controller.Fatal(fatal), fatal, []string{"synced", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				look := 0
				w := &controller.Watch{
					Objects: "things", Log: slog.New(slog.DiscardHandler),
					Unserved: func(context.Context) string {
						look++
						return tt.unserved[min(look, len(tt.unserved))-1]
					},
					Manager: func(context.Context) (ctrl.Manager, error) { return nil, tt.manager },
				}
				_, why := w.Synced()
				messages := []string{why}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				for range 10 {
					synctest.Wait()
					if ok, why := w.Synced(); !slices.Contains(messages, why) {
						messages = append(messages, why)
					} else if ok {
						t.Error("it is ready")
					}
					time.Sleep(2 * time.Second) // the bubble's time
				}
				cancel()
				if err := <-ended; !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("it ended with %v, want %v", err, tt.want)
				}
				if !slices.Equal(messages, tt.output) {
					t.Errorf("it said %q, want %q", messages, tt.output)
				}
			})
		})
	}
}
