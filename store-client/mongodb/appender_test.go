package mongodb_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestAppender: what opens for appending makes nothing, waits for a service that
// does, and then appends as the services do.
func TestAppender(t *testing.T) {
	mongotest.Need(t)
	dsn := mongotest.Database(t)
	clk := testkit.NewClock()
	ctx, cancel := context.WithCancel(t.Context())
	h := &storetest.Hearing{}
	opened := make(chan error)
	go func() {
		_, err := storeopen.OpenAppender(ctx, dsn, storeopen.Options{Clock: clk, Logger: h.Logger()})
		opened <- err
	}()
	testkit.Until(t, time.Minute, clk.HasWaiters)
	cancel()
	if err := <-opened; err == nil || !strings.Contains(err.Error(), "reserving places") {
		t.Fatalf("opening without the append counter: %v", err)
	}
	s := storetest.Open(t, dsn, storeopen.Options{})
	a, err := storeopen.OpenAppender(t.Context(), dsn, storeopen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r := storetest.Record("n")
	results, err := a.Append(t.Context(), []record.Record{r, r})
	if diff := cmp.Diff([]store.AppendResult{store.Appended, store.Duplicate}, results); diff != "" || err != nil {
		t.Errorf("results: %v (-want +got):\n%s", err, diff)
	}
	if got := storetest.MustGet(t, s, r.ID); got.Append != 1 {
		t.Errorf("stored at place %d, want 1", got.Append)
	}
}
