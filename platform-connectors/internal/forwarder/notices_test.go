package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
	places "github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// counting is a store behind which a gateway counts every second record, and of which dead
// letters go.
type counting struct{ fakeStore }

func (c *counting) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	results, err := c.fakeStore.Append(ctx, records)
	for i := range results {
		if i%2 == 1 && results[i] == store.Appended {
			results[i] = store.Counted
		}
	}
	return results, err
}

func (c *counting) Dead(ctx context.Context, deadLetter store.DeadLetter) error {
	places.ReportDropped(ctx, 3)
	return c.fakeStore.Dead(ctx, deadLetter)
}

// TestCountedEventsAreReported: counted events delay nothing. The spool is released, and an
// Event of the Node shows how many, also after an Event could not be written.
func TestCountedEventsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, c := &queue{entries: entries(10)}, &counting{fakeStore{refuse: map[string]bool{"0": true}}}
		r := newForwarder(q, q, &c.fakeStore, 0)
		client := fake.NewClientset()
		var failing atomic.Bool
		failing.Store(true)
		client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			return failing.Load(), nil, errors.New("not now")
		})
		notices := &Notices{
			Node:   func() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-7"}} },
			Client: &nodeclient.Client{Events: client.CoreV1().Events("default")}, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		}
		r.Sender.Sink, r.Sender.Notices = c, notices
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		q.end = cancel
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := testutil.ToFloat64(r.Sender.Metrics.appended.WithLabelValues("counted")); n != 5 || q.confirmed != 10 {
			t.Errorf("%v counted, confirmed up to %d", n, q.confirmed)
		}
		ctx, cancel = context.WithCancel(t.Context())
		go func() { _ = notices.Run(ctx) }()
		time.Sleep(noticeEvery + time.Second)
		failing.Store(false)
		time.Sleep(noticeEvery)
		cancel()
		list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var reported []string
		for _, e := range list.Items {
			reported = append(reported, fmt.Sprint(e.Reason, " ", e.InvolvedObject.Name, " ", e.Count))
		}
		slices.Sort(reported)
		if diff := cmp.Diff([]string{"DeadLettersDropped gpu-7 3", "QuotaExceeded gpu-7 5"}, reported); diff != "" {
			t.Errorf("Events (-want +got):\n%s", diff)
		}
	})
}

// TestADetailIsAnEventOfItsOwn, up to a number of them: a publisher chooses the details.
func TestADetailIsAnEventOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		notices := &Notices{
			Node:   func() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-7"}} },
			Client: &nodeclient.Client{Events: client.CoreV1().Events("default")}, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = notices.Run(ctx) }()
		notices.AddDetail(EventsRejected, `check "GpuBroken" belongs to agent "gpu-health-monitor"`, 2)
		for i := range 3 * maxDetails {
			notices.AddDetail(EventsRejected, fmt.Sprint(i, strings.Repeat("x", 2000)), 1)
		}
		time.Sleep(noticeEvery + time.Second)
		cancel()
		list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var named, rest int32
		for _, e := range list.Items {
			switch {
			case len(e.Message) > 1024 || e.Reason != EventsRejected:
				t.Errorf("Event %s with %d bytes", e.Reason, len(e.Message))
			case strings.HasSuffix(e.Message, `check "GpuBroken" belongs to agent "gpu-health-monitor"`):
				named = e.Count
			case strings.HasSuffix(e.Message, "dead letters"):
				rest = e.Count
			}
		}
		if len(list.Items) != maxDetails+1 || named != 2 || rest != 2*maxDetails+1 {
			t.Errorf("%d Events, the named one %d times, the rest %d times", len(list.Items), named, rest)
		}
	})
}

// TestBacklogIsReported: since when, why, and whether a fatal fault that acts is among it.
func TestBacklogIsReported(t *testing.T) {
	for _, tc := range []struct {
		strategy record.Strategy
		healthy  bool
		fatal    bool
	}{{record.Process, false, true}, {record.PersistOnly, false, false}, {record.Process, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			q, b := &queue{entries: entries(2)}, &fakeStore{failures: 8}
			e := &q.entries[1].Record.Event
			e.IsFatal, e.ProcessingStrategy, e.IsHealthy = true, tc.strategy, tc.healthy
			r := newForwarder(q, q, b, 0)
			if got := r.Backlog(); got != (conditions.Backlog{}) {
				t.Errorf("before the first: %+v", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			q.end = cancel
			start := time.Now()
			go func() { _ = r.Run(ctx) }()
			time.Sleep(5 * time.Second)
			if got := r.Backlog(); !got.Since.Equal(start) || got.Fatal != tc.fatal || got.Problem == "" || got.Delivered {
				t.Errorf("while the store is away: %+v of %+v", got, tc)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if got := r.Backlog(); got != (conditions.Backlog{Delivered: true}) || len(b.stored) != 2 {
				t.Errorf("when it is back: %+v", got)
			}
		})
	}
}
