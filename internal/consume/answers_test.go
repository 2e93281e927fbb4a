package consume_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// begin runs a loop in the background; the returned function stops it.
func begin(t *testing.T, l *consume.Loop[string]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestADeliveryDuringAHandlingIsLeftToTheNext holds the first handling open
// while another delivery of the key comes in: the first answer must not settle
// the second delivery, whose facts it has not read.
func TestADeliveryDuringAHandlingIsLeftToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{keys: []string{"n1"}}
		calls := 0
		l := loop(f, func(ctx context.Context, _ string) error {
			calls++
			if calls == 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			<-time.After(10 * time.Second)
			return nil
		})
		stop := begin(t, l)
		<-time.After(time.Second)
		f.add("n1")
		<-time.After(time.Minute)
		synctest.Wait()
		if calls != 2 || f.position() != 1 {
			t.Errorf("%d calls, position %d; want 2 and 1", calls, f.position())
		}
		stop()
		if f.position() != 1 {
			t.Errorf("position %d after a handling was cut short, want 1", f.position())
		}
	})
}

func TestTheLastCommitComesAtTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{keys: []string{"a", "b"}}
		l := loop(f, func(_ context.Context, key string) error {
			if key == "b" {
				<-time.After(10 * time.Millisecond) // within the throttle
			}
			return nil
		})
		stop := begin(t, l)
		<-time.After(20 * time.Millisecond)
		stop()
		if f.position() != 2 || f.commits > 2 {
			t.Errorf("position %d after %d commits, want 2 after at most 2", f.position(), f.commits)
		}
	})
}

func TestCommitsAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{}
		for range 1000 {
			f.keys = append(f.keys, "n")
		}
		l := loop(f, func(context.Context, string) error { return nil })
		f.pace = time.Millisecond
		stop := begin(t, l)
		<-time.After(2 * time.Second)
		stop()
		if f.position() != 1000 || f.commits < 5 || f.commits > 12 {
			t.Errorf("position %d after %d commits, want 1000 after about 10", f.position(), f.commits)
		}
	})
}

func TestACommitThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{keys: []string{"a"}, failCommits: 5}
		l := loop(f, func(context.Context, string) error { return nil })
		stop := begin(t, l)
		<-time.After(time.Minute)
		if f.position() != 1 {
			t.Errorf("position %d, want 1", f.position())
		}
		stop()
	})
}

// TestEnqueueHasPriorityOverEveryDelay enqueues a key that is parked for an hour
// after it was to be asked again in a minute: neither delays that, and the
// first time is kept.
func TestEnqueueHasPriorityOverEveryDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		l := loop(&tape{keys: []string{"a"}}, func(context.Context, string) error {
			at = append(at, time.Since(began).Round(time.Second))
			if len(at) < 3 {
				return retry.Park(time.Minute, "pods")
			}
			return retry.Park(time.Hour, "pods")
		})
		stop := begin(t, l)
		for range 2 {
			<-time.After(10 * time.Second)
			l.Enqueue("a")
		}
		<-time.After(2 * time.Hour)
		stop()
		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, time.Minute, time.Hour + time.Minute}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("asked at (-want +got):\n%s", diff)
		}
	})
}

// TestBackoffGrowsAndIsForgotten lets a key fail, settle, and fail again.
func TestBackoffGrowsAndIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		l := loop(&tape{keys: []string{"a"}}, func(context.Context, string) error {
			at = append(at, time.Since(began))
			began = time.Now()
			if len(at) == 5 || len(at) > 7 {
				return nil
			}
			return errors.New("not yet")
		})
		stop := begin(t, l)
		<-time.After(time.Minute)
		began = time.Now()
		l.Enqueue("a")
		<-time.After(time.Minute)
		stop()
		const ms = time.Millisecond
		want := []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 0, 100 * ms, 200 * ms}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("pauses (-want +got):\n%s", diff)
		}
	})
}

func TestKeysBeforeTheStartAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		l := loop(nil, func(context.Context, string) error { calls++; return nil })
		l.Open = nil
		l.Enqueue("a")
		l.Enqueue("")
		run(t, l, time.Second)
		if calls != 1 {
			t.Errorf("%d calls, want 1", calls)
		}
	})
}

func TestDeliveriesWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{keys: []string{"", "a", "poison", "b"}}
		var handled []string
		l := loop(f, func(_ context.Context, key string) error { handled = append(handled, key); return nil })
		l.Workers = 1
		l.Key = func(s string) string {
			if s == "poison" {
				panic("no such field")
			}
			return s
		}
		stop := begin(t, l)
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b"}, handled); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
		if f.position() != 2 {
			t.Errorf("position %d, want 2: an empty key is settled, a panic is held", f.position())
		}
		if ok, detail := l.Ready(); ok || !strings.Contains(detail, "a delivery without a key held for 2m0s: panic: no such field") {
			t.Errorf("ready %v, %q", ok, detail)
		}
		stop()
	})
}

// answer is an error that a test changes while the loop runs.
type answer struct {
	mu  sync.Mutex
	err error
}

func (a *answer) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *answer) get() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func TestReadinessNamesMissingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{}
		var fault, backlog answer
		backlog.set(errors.New("the store is away"))
		l := loop(f, func(context.Context, string) error { return fault.get() })
		l.Backlog = func(context.Context, func(string)) error { return backlog.get() }
		expect := func(ok bool, part string) {
			t.Helper()
			synctest.Wait()
			if got, detail := l.Ready(); got != ok || !strings.Contains(detail, part) {
				t.Errorf("ready %v, %q; want %v, %q", got, detail, ok, part)
			}
		}
		expect(true, "standing by")
		stop := begin(t, l)
		expect(false, "reading the backlog fails: the store is away")
		backlog.set(nil)
		<-time.After(time.Minute)
		expect(true, "live, 0 unsettled")

		fault.set(retry.Wait(time.Second, "node n1 changed by another client"))
		f.add("n1")
		<-time.After(59 * time.Second)
		expect(true, "live, 1 unsettled")
		<-time.After(2 * time.Second)
		expect(false, "key n1 held for 1m1s: node n1 changed by another client")
		fault.set(nil)
		<-time.After(2 * time.Second)
		expect(true, "live, 0 unsettled")

		fault.set(errors.New("the API server is away"))
		l.Enqueue("n2") // without a delivery
		<-time.After(61 * time.Second)
		expect(false, "key n2 held for 1m1s: the API server is away")
		fault.set(nil)
		<-time.After(time.Minute)
		expect(true, "live")
		stop()
		expect(false, "stopped")
	})
}

// TestAFeedThatRecoversQuietly fails for some minutes and then has no news:
// the loop must become ready again without a delivery.
func TestAFeedThatRecoversQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{failNext: 20}
		l := loop(f, func(context.Context, string) error { return nil })
		stop := begin(t, l)
		<-time.After(3 * time.Minute)
		if ok, detail := l.Ready(); ok || !strings.Contains(detail, "feed held for 3m0s: the store is away") {
			t.Errorf("while it fails: ready %v, %q", ok, detail)
		}
		<-time.After(10 * time.Minute)
		if ok, detail := l.Ready(); !ok {
			t.Errorf("after it recovered: not ready, %q", detail)
		}
		f.mu.Lock()
		f.failNext = 1
		f.mu.Unlock()
		f.add("n1")
		<-time.After(time.Second)
		if ok, detail := l.Ready(); !ok {
			t.Errorf("one new failure counts from the first of long ago: %q", detail)
		}
		stop()
	})
}

func TestABrokenSourceIsStartedAgainAndShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		l := loop(&tape{}, func(context.Context, string) error { return nil })
		l.Sources = append(l.Sources, func(context.Context, func(string)) error { starts++; return errors.New("no cache") })
		stop := begin(t, l)
		<-time.After(3 * time.Minute)
		synctest.Wait()
		if ok, detail := l.Ready(); ok || !strings.Contains(detail, "no cache") || starts < 5 {
			t.Errorf("ready %v, %q after %d starts", ok, detail, starts)
		}
		stop()
	})
}

// TestAFeedThatCannotBeOpenedIsTriedAgain: meanwhile the loop is not ready and reports why,
// and nobody opens it before the loop runs.
func TestAFeedThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, handled := &tape{keys: []string{"n1"}, failOpen: 2}, 0
		l := loop(f, func(context.Context, string) error { handled++; return nil })
		if ok, detail := l.Ready(); !ok || f.failOpen != 2 {
			t.Errorf("a standby is ready %v, %q, and %d failures are left", ok, detail, f.failOpen)
		}
		stop := begin(t, l)
		<-time.After(50 * time.Millisecond)
		if ok, detail := l.Ready(); ok || !strings.Contains(detail, "opening the change feed fails: the store is away") {
			t.Errorf("ready %v, %q", ok, detail)
		}
		<-time.After(10 * time.Second)
		if ok, detail := l.Ready(); !ok || handled != 1 || f.opened != 1 {
			t.Errorf("ready %v, %q, handled %d, open %d", ok, detail, handled, f.opened)
		}
		stop()
		if f.opened != 0 {
			t.Errorf("%d feeds are left open", f.opened)
		}
	})
}

// TestTasks: one that fails is started again and shows, one that ends well is over, and
// none begins before the loop does.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails, once, each := 0, 0, 0
		l := loop(&tape{}, func(context.Context, string) error { return nil })
		l.Tasks = []consume.Task{
			{Name: "claims", Do: func(context.Context) error { fails++; return errors.New("no cache") }},
			{Name: "first", Do: func(context.Context) error { once++; return nil }},
			{Name: "each minute", Every: time.Minute, Do: func(context.Context) error { each++; return nil }},
		}
		<-time.After(time.Minute)
		if fails+once+each > 0 {
			t.Error("a task began before the loop")
		}
		stop := begin(t, l)
		<-time.After(3 * time.Minute)
		synctest.Wait()
		if ok, detail := l.Ready(); ok || !strings.Contains(detail, "claims") || !strings.Contains(detail, "no cache") || fails < 5 || once != 1 || each != 4 {
			t.Errorf("ready %v, %q after %d, %d and %d starts", ok, detail, fails, once, each)
		}
		stop()
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		f := &tape{keys: []string{"ok", "", "stuck", "slow", "parked"}, failNext: 1}
		l := loop(f, func(_ context.Context, key string) error {
			switch key {
			case "stuck":
				return retry.Wait(time.Minute, "race")
			case "parked":
				return retry.Park(time.Hour, "pods")
			case "slow":
				<-time.After(2 * time.Hour)
			}
			return nil
		})
		l.Metrics = consume.NewMetrics(registry, consume.Names{
			Namespace: "service", Handling: "service_event_handling_duration_seconds", Depth: "service_queue_depth",
		})
		stop := begin(t, l)
		<-time.After(90*time.Second + time.Second)
		got := gather(t, registry)
		// The first two positions may be stored one by one or together.
		if n := got["service_checkpoints_total{}"]; n != 1 && n != 2 {
			t.Errorf("%v commits, want 1 or 2", n)
		}
		delete(got, "service_checkpoints_total{}")
		want := map[string]float64{
			`service_keys_handled_total{outcome="settled"}`:   1,
			`service_keys_handled_total{outcome="ignored"}`:   1,
			`service_keys_handled_total{outcome="wait"}`:      2,
			`service_keys_handled_total{outcome="park"}`:      1,
			`service_source_failures_total{source="feed"}`:    1,
			`service_event_handling_duration_seconds_count{}`: 4,
			`service_queue_depth{}`:                           0,
			`service_unsettled_deliveries{}`:                  2,
			`service_oldest_unsettled_seconds{}`:              90.9,
			`service_stuck{}`:                                 1,
			`service_dead_lettered_records{}`:                 0,
			`service_crash_loop_isolation{}`:                  0,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		<-time.After(2 * time.Hour)
		stop()
		if got := gather(t, registry)["service_stuck{}"]; got != 0 {
			t.Errorf("stuck is %v after the stop", got)
		}
	})
}

// gather reads counters, gauges and the counts of histograms.
func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += l.GetName() + `="` + l.GetValue() + `"`
			}
			name := family.GetName()
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if h := m.GetHistogram(); h != nil {
				name, value = name+"_count", float64(h.GetSampleCount())
			}
			out[name+"{"+labels+"}"] = value
		}
	}
	return out
}
