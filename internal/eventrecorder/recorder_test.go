package eventrecorder_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/eventrecorder"
)

// bench is a Recorder before a simulated API server.
type bench struct {
	*eventrecorder.Recorder
	t        *testing.T
	client   *fake.Clientset
	registry *prometheus.Registry
	// away is how the API server answers writes of Events; nil is well.
	away atomic.Pointer[func() error]
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, client: fake.NewClientset(), registry: prometheus.NewRegistry()}
	b.client.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		answer := b.away.Load()
		if answer == nil {
			return false, nil, nil
		}
		return true, nil, (*answer)()
	})
	b.Recorder = eventrecorder.New(b.client, eventrecorder.Component("janitor"), clock.RealClock{}, slog.New(slog.DiscardHandler), b.registry)
	return b
}

// answers lets the API server answer so.
func (b *bench) answers(answer func() error) { b.away.Store(&answer) }

// taken is the answer of an API server that keeps nothing, which is faster.
func taken() error { return nil }

// results are the Events so far, by what became of them.
func (b *bench) results(want string) {
	b.t.Helper()
	var got []string
	for _, result := range []string{"written", "filtered", "dropped", "failed"} {
		families, err := b.registry.Gather()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, m := range families[0].GetMetric() {
			if n := m.GetCounter().GetValue(); m.GetLabel()[0].GetValue() == result && n > 0 {
				got = append(got, fmt.Sprintf("%s %v", result, n))
			}
		}
	}
	if text := strings.Join(got, ", "); text != want {
		b.t.Errorf("%q, want %q", text, want)
	}
}

// written are the Events of the API server.
func (b *bench) written() []corev1.Event {
	b.t.Helper()
	list, err := b.client.CoreV1().Events(metav1.NamespaceAll).List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

// run runs the recorder until the returned function is called.
func (b *bench) run() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error)
	go func() { ended <- b.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
}

func (b *bench) flush() {
	b.t.Helper()
	if err := b.Flush(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) warn(node, message string) {
	b.Event(eventrecorder.Node(node), corev1.EventTypeWarning, "Reason", message)
}

// TestFullQueue: when the queue is full, an Event is counted and lost, and nobody waits;
// what fits is written at 20 a second.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.answers(taken)
		for i := range 4096 + 10 {
			b.warn(fmt.Sprint("gpu-", i), "m")
		}
		b.results("dropped 10")
		stop := b.run()
		<-time.After(99 * time.Second)
		synctest.Wait()
		b.results("written 2000, dropped 10")
		<-time.After(105 * time.Second)
		synctest.Wait()
		b.results("written 4096, dropped 10")
		stop()
	})
}

// TestServerAway: an Event waits for the API server for half a minute, with those
// behind it; one that it refuses does not.
func TestServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.answers(func() error { return errors.New("connection refused") })
		stop := b.run()
		b.warn("gpu-1", "first")
		b.warn("gpu-1", "second")
		<-time.After(10 * time.Second)
		b.results("")
		b.away.Store(nil)
		<-time.After(10 * time.Second)
		b.results("written 2")
		b.answers(func() error { return apierrors.NewInternalError(errors.New("no leader")) })
		b.warn("gpu-1", "third")
		<-time.After(time.Minute)
		b.results("written 2, failed 1")
		tries := len(b.client.Actions())
		b.answers(func() error { return apierrors.NewForbidden(corev1.Resource("events"), "", nil) })
		b.warn("gpu-1", "fourth")
		<-time.After(time.Minute)
		b.results("written 2, failed 2")
		if n := len(b.client.Actions()) - tries; n != 1 {
			t.Errorf("%d tries of an Event that is refused", n)
		}
		stop()
	})
}

// TestWriteFirst: Write returns when the Event is there; when it can not be, the
// work goes on, and the Event follows.
func TestWriteFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Write(t.Context(), eventrecorder.Node("gpu-1"), corev1.EventTypeNormal, "RebootSignal", "one")
		if n := len(b.written()); n != 1 {
			t.Fatalf("%d Events", n)
		}
		b.answers(func() error { return errors.New("connection refused") })
		b.Write(t.Context(), eventrecorder.Node("gpu-1"), corev1.EventTypeNormal, "RebootSignal", "two")
		b.results("written 1")
		<-time.After(time.Minute)
		b.answers(func() error {
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Event").GroupKind(), "", nil)
		})
		b.Write(t.Context(), eventrecorder.Node("gpu-1"), corev1.EventTypeNormal, "RebootSignal", "three")
		b.results("written 1, failed 1")
		b.away.Store(nil)
		b.flush()
		b.results("written 2, failed 1")
		for _, e := range b.written() {
			if e.Count != 1 {
				t.Errorf("%s is counted %d times", e.Message, e.Count)
			}
		}
	})
}

// TestManyWritesWaitOnce: an API server that hangs holds an act of many Events up for
// the time of one.
func TestManyWritesWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.answers(func() error { <-time.After(5 * time.Second); return context.DeadlineExceeded })
		began := time.Now()
		for i := range 16 {
			b.Write(t.Context(), eventrecorder.Node("gpu-1"), corev1.EventTypeWarning, "ManualInterventionRequired", fmt.Sprint("record ", i))
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("it took %s", d)
		}
		b.away.Store(nil)
		b.flush()
		b.results("written 16")
	})
}

// TestFlush: what waits at the end is written then, an Event in work first that the
// end interrupts; within a bound, and the rest is counted.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		stop := b.run()
		b.answers(func() error { return errors.New("connection refused") })
		b.warn("gpu-1", "in work")
		<-time.After(2 * time.Second)
		stop()
		b.warn("gpu-1", "late")
		b.away.Store(nil)
		b.flush()
		b.results("written 2")
		for i := range 200 {
			b.warn(fmt.Sprint("gpu-", i), "at the end")
		}
		began := time.Now()
		b.flush()
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("it took %s", d)
		}
		b.results("written 120, dropped 82")
	})
}

// TestAnswerThatGotLost: an Event that is there already is written.
func TestAnswerThatGotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		lost := false
		b.client.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if lost {
				return false, nil, nil
			}
			lost = true
			e := a.(clienttesting.CreateAction).GetObject()
			return true, nil, errors.Join(errors.New("broken pipe"), b.client.Tracker().Create(corev1.SchemeGroupVersion.WithResource("events"), e, "default"))
		})
		b.warn("gpu-1", "m")
		b.flush()
		b.results("written 1")
		if n := len(b.written()); n != 1 {
			t.Errorf("%d Events", n)
		}
	})
}

// TestAlikeAreCombined: from the 32nd on, Events of one reason about one node that
// differ in their message are one, until they pause for ten minutes.
func TestAlikeAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 40 {
			b.warn("gpu-1", fmt.Sprint("fault ", i, " is held"))
			b.flush()
		}
		all := b.written()
		combined := 0
		for _, e := range all {
			if strings.HasPrefix(e.Message, "(combined from similar events): ") {
				combined++
				if e.Count != 9 {
					t.Errorf("%d are combined, want 9", e.Count)
				}
			}
		}
		if len(all) != 32 || combined != 1 {
			t.Errorf("%d Events, %d of which are combined", len(all), combined)
		}
		<-time.After(11 * time.Minute)
		b.warn("gpu-1", "one more")
		b.flush()
		if n := len(b.written()); n != 33 {
			t.Errorf("%d Events", n)
		}
	})
}

// TestNodeEvents: a repair that goes wrong with 24 faults, several times a day,
// is reported whole; what repeats every second is not.
func TestNodeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.answers(taken)
		stop := b.run()
		for day := range 6 {
			for fault := range 24 {
				b.warn("gpu-1", fmt.Sprintf("fault %d of %d is held", fault, day))
				b.Write(t.Context(), eventrecorder.Node("gpu-1"), corev1.EventTypeWarning, "ManualInterventionRequired", fmt.Sprintf("record %d of %d", fault, day))
				b.Event(eventrecorder.Node("gpu-1"), corev1.EventTypeNormal, "DrainStarted", fmt.Sprintf("%d of %d", fault, day))
			}
			<-time.After(4 * time.Hour)
		}
		b.results("written 432")
		for range 300 {
			b.warn("gpu-1", "again")
			<-time.After(time.Second)
		}
		synctest.Wait()
		b.results("written 564, filtered 168") // 128, and one for each of the first four minutes
		if n := testutil.CollectAndCount(b.registry); n != 4 {
			t.Errorf("%d results have a series, want all four from the start", n)
		}
		stop()
	})
}

// TestNilRecordsNothing: who is given no recorder needs none.
func TestNilRecordsNothing(t *testing.T) {
	var none *eventrecorder.Recorder
	none.Event(eventrecorder.Node("gpu-1"), corev1.EventTypeNormal, "Reason", "m")
	none.Write(t.Context(), eventrecorder.Node("gpu-1"), corev1.EventTypeNormal, "Reason", "m")
}
