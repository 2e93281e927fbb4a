package lease

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/internal/daemon"
)

// replica is one process that stands for election in a test.
type replica struct {
	stop context.CancelFunc
	done chan error

	mu       sync.Mutex
	standing string
}

func (r *replica) detail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.standing
}

func start(t *testing.T, client *fake.Clientset, run func(context.Context) error) *replica {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &replica{stop: stop, done: make(chan error, 1)}
	cfg := Default()
	cfg.Enabled = true
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	identity := candidate{"svc", "the work", slog.New(slog.DiscardHandler), prometheus.NewRegistry(), func(s string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.standing = s
	}}
	go func() {
		r.done <- cfg.elect(ctx, client, identity, run)
	}()
	return r
}

func TestOneActsAndTheOtherTakesOverAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var acting, most atomic.Int32
		work := func(ctx context.Context) error {
			most.Store(max(most.Load(), acting.Add(1)))
			<-ctx.Done()
			<-time.After(time.Minute) // it ends more slowly than a lease
			acting.Add(-1)
			return nil
		}
		first := start(t, client, work)
		<-time.After(time.Second)
		second := start(t, client, work)
		<-time.After(time.Minute)
		if acting.Load() != 1 || first.detail() != "leading" || !strings.HasPrefix(second.detail(), "standing by for ") {
			t.Fatalf("%d act, first %q, second %q", acting.Load(), first.detail(), second.detail())
		}
		first.stop()
		<-time.After(50 * time.Second)
		if acting.Load() != 1 || first.detail() != "leading" {
			t.Errorf("while the first ends it says %q, the second %q", first.detail(), second.detail())
		}
		if err := <-first.done; err != nil {
			t.Errorf("the first ended with %v", err)
		}
		released := time.Now()
		<-time.After(5 * time.Second)
		if second.detail() != "leading" || acting.Load() != 1 {
			t.Errorf("%s after the end of the first, the second says %q", time.Since(released), second.detail())
		}
		second.stop()
		if err := <-second.done; err != nil {
			t.Errorf("the second ended with %v", err)
		}
		if most.Load() != 1 {
			t.Errorf("%d acted at once", most.Load())
		}
	})
}

func TestAStandbyStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		work := func(ctx context.Context) error { <-ctx.Done(); return nil }
		first := start(t, client, work)
		<-time.After(time.Second)
		second := start(t, client, work)
		<-time.After(10 * time.Second)
		second.stop()
		if err := <-second.done; err != nil {
			t.Errorf("the standby ended with %v", err)
		}
		if first.detail() != "leading" {
			t.Errorf("the leader says %q after a standby left", first.detail())
		}
		first.stop()
		<-first.done
	})
}

func TestTheWorksErrorReleasesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, boom := fake.NewClientset(), errors.New("boom")
		first := start(t, client, func(context.Context) error { return boom })
		if err := <-first.done; !errors.Is(err, boom) {
			t.Errorf("got %v, want boom", err)
		}
		led := make(chan struct{})
		second := start(t, client, func(ctx context.Context) error { close(led); <-ctx.Done(); return nil })
		<-time.After(4 * time.Second)
		select {
		case <-led:
		default:
			t.Error("the lease is not free after the work failed")
		}
		second.stop()
		<-second.done
	})
}

// TestALostLeaseEndsTheWorkBeforeAnotherCanLead cuts the leader off from the
// API server: its fence closes, its work ends and ErrLost is returned, all
// before the lease could be another's.
func TestALostLeaseEndsTheWorkBeforeAnotherCanLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return cut.Load(), nil, errors.New("no route to the API server")
		})
		var fenced, ended time.Time
		work := func(ctx context.Context) error {
			<-time.After(31 * time.Second) // between two renewals
			if fence, cancel := Fence(ctx); fence.Err() != nil {
				t.Error("the fence of a leader is closed")
				cancel()
			}
			cut.Store(true)
			fence, cancel := Fence(ctx)
			defer cancel()
			<-fence.Done()
			fenced = time.Now()
			if !errors.Is(fence.Err(), context.DeadlineExceeded) {
				t.Errorf("the fence ended with %v", fence.Err())
			}
			again, cancel := Fence(ctx)
			defer cancel()
			if again.Err() == nil {
				t.Error("a fence opens after the renew deadline")
			}
			<-ctx.Done()
			ended = time.Now()
			return nil
		}
		began := time.Now()
		r := start(t, client, work)
		err := <-r.done
		if !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
		// The last renewal was at most a retry period before the cut.
		cutAt := began.Add(31 * time.Second)
		if fenced.After(cutAt.Add(Default().RenewDeadline)) {
			t.Errorf("the fence closed %s after the cut", fenced.Sub(cutAt))
		}
		if limit := Default().Duration - Default().RetryPeriod; ended.After(cutAt.Add(limit)) {
			t.Errorf("the work ended %s after the cut, want at most %s", ended.Sub(cutAt), limit)
		}
	})
}

// TestAFenceMovesOnWithTheLease works for 40 s under one fence while the lease
// is renewed every 2 s; then the leader is cut off and the fence ends when the
// last renewal's term does.
func TestAFenceMovesOnWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return cut.Load(), nil, errors.New("no route to the API server")
		})
		work := func(ctx context.Context) error {
			fence, release := Fence(ctx)
			defer release()
			call, cancel := context.WithTimeout(fence, 30*time.Second)
			defer cancel()
			began := time.Now()
			<-call.Done()
			if took := time.Since(began); took != 30*time.Second || fence.Err() != nil {
				t.Errorf("a call of 30 s was cut after %s, the fence says %v", took, fence.Err())
			}
			<-time.After(10*time.Second + time.Millisecond)
			if fence.Err() != nil {
				t.Errorf("work of 40 s under a renewed lease was cut: %v", fence.Err())
			}
			cut.Store(true)
			began = time.Now()
			call, cancel = context.WithTimeout(fence, time.Hour)
			defer cancel()
			<-call.Done()
			least := Default().RenewDeadline - Default().RetryPeriod
			if took := time.Since(began); took > Default().RenewDeadline || took < least-time.Second {
				t.Errorf("the fence ended %s after the cut", took)
			}
			if !errors.Is(fence.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(call), context.DeadlineExceeded) {
				t.Errorf("the fence ended with %v, the call with %v", fence.Err(), context.Cause(call))
			}
			<-ctx.Done()
			return nil
		}
		if err := <-start(t, client, work).done; !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}

// TestFenceChecksTheClock: a process that was stopped for longer than its term
// must not act before its timers have run.
func TestFenceChecksTheClock(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	lock := &fencedLock{clock: clock, renewDeadline: 10 * time.Second, renewed: clock.Now()}
	fence, release := Fence(context.WithValue(t.Context(), fenceKey{}, lock))
	defer release()
	if fence.Err() != nil {
		t.Fatalf("the fence of a leader is closed: %v", fence.Err())
	}
	clock.Step(10 * time.Second)
	if !errors.Is(fence.Err(), context.DeadlineExceeded) {
		t.Errorf("after the term the fence says %v", fence.Err())
	}
	<-fence.Done()
}

func TestWithoutElectionItRunsAtOnce(t *testing.T) {
	ran := false
	r := daemon.RunForTest(t, "svc", struct{}{}, func(_ context.Context, d *daemon.Daemon, _ struct{}) error {
		Default().Lead(d, "", "work", func(ctx context.Context) error {
			fence, cancel := Fence(ctx)
			defer cancel()
			_, bounded := fence.Deadline()
			ran = fence.Err() == nil && !bounded
			return nil
		})
		return nil
	})
	if code := r.Wait(); code != 0 || !ran {
		t.Errorf("exit code %d, ran %v", code, ran)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"the defaults", func(*Config) {}, ""},
		{"no namespace", func(c *Config) { c.Namespace = "" }, "leaderElection.namespace is empty"},
		{"a deadline beyond the lease", func(c *Config) { c.RenewDeadline = c.Duration }, "leaderElection.leaseDuration 15s must be longer than renewDeadline 15s"},
		{"few retries", func(c *Config) { c.RetryPeriod = 5 * time.Second }, "leaderElection.renewDeadline 10s must be longer than two retryPeriods 5s"},
		{"off", func(c *Config) { *c = Config{} }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Default()
			cfg.Enabled = true
			tt.edit(&cfg)
			got := ""
			if err := cfg.Validate(); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
