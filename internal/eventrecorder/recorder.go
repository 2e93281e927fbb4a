// Package eventrecorder writes the Kubernetes Events of a service. What client-go's
// recorder does to Events (counting those that repeat, combining those that are
// alike, filtering those of one object that are too many) its correlator does here
// too; writing is ours, because client-go's broadcaster silently loses what its queue has
// no capacity for, ends without writing what waits, and writes nothing before it returns.
package eventrecorder

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

const (
	// maxWaiting bounds the Events that wait to be written.
	maxWaiting = 4096
	// perSecond and burst are the pace of Events that wait: in a storm the nodes
	// come first. An Event bears the time of what it reports.
	perSecond, burst = 20, 20
	// writeTime bounds one try to write an Event, stopTime what is written when the
	// process ends.
	writeTime, stopTime = 5 * time.Second, 5 * time.Second
	// awayTime is how long Write waits for nothing after one that was not answered, so
	// that many Events of one act do not hold it up one after the other.
	awayTime = 30 * time.Second
	// alike and alikeWithin: so many different messages of one reason about one
	// object within this time, and the later ones are combined in one Event.
	alike, alikeWithin = 32, 10 * time.Minute
	// objectBurst and objectPerSecond bound the writes of one type about one object.
	// client-go's own bound (25, then one in five minutes) would hide the later half
	// of a repair in which each of many faults is reported.
	objectBurst, objectPerSecond = 128, 1. / 60
)

// retries of an Event that waits, while the API server does not answer: half a
// minute.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 6, Jitter: 0.1}

// Component is how a service calls itself in Events.
func Component(service string) string { return "nvsentinel-" + service }

// Recorder writes Events. A nil one writes none.
type Recorder struct {
	client     kubernetes.Interface
	component  string
	clock      clock.PassiveClock
	log        *slog.Logger
	correlator *record.EventCorrelator
	pace       flowcontrol.RateLimiter
	waiting    chan *record.EventCorrelateResult
	results    *prometheus.CounterVec
	made       atomic.Int64 // Events; it keeps those of one moment apart
	away       atomic.Int64 // the time until which Write does not wait, in Unix nanoseconds
}

// Start records the Events of a service with its process. What waits when the
// process ends is written then, for at most five seconds.
func Start(d *daemon.Daemon, cluster *kube.Client) *Recorder {
	r := New(cluster.Clientset, Component(d.Name), cluster.Clock(d.Clock), d.Log, d.Registry)
	d.Go("kubernetes events", r.Run)
	d.OnStop("kubernetes events", r.Flush)
	return r
}

// New makes a Recorder; Run writes what it is given.
func New(client kubernetes.Interface, component string, now clock.PassiveClock, log *slog.Logger, registry prometheus.Registerer) *Recorder {
	r := &Recorder{
		client: client, component: component, clock: now, log: log,
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
			BurstSize: objectBurst, QPS: objectPerSecond, MaxEvents: alike, MaxIntervalInSeconds: int(alikeWithin.Seconds()), Clock: now,
		}),
		pace:    flowcontrol.NewTokenBucketRateLimiter(perSecond, burst),
		waiting: make(chan *record.EventCorrelateResult, maxWaiting),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_kubernetes_events_total", Help: "Kubernetes Events, by result: written, filtered (too many of one object), dropped (full queue) or failed.",
		}, []string{"result"}),
	}
	for _, result := range []string{"written", "filtered", "dropped", "failed"} {
		r.results.WithLabelValues(result)
	}
	registry.MustRegister(r.results)
	return r
}

// Event writes an Event about an object besides the work, soon; its type is Normal
// or Warning. The same words raise the count of the Event before. It never blocks:
// when the queue is full, the Event is counted and lost.
func (r *Recorder) Event(about corev1.ObjectReference, eventtype, reason, message string) {
	if e := r.correlate(about, eventtype, reason, message); e != nil {
		r.queue(e)
	}
}

// Write is Event for what must be reported before something is done: it returns when
// the Event is written. One that the API server does not take within five seconds is
// written later, as by Event, and so are those of the next half minute, so that no
// work depends on them.
func (r *Recorder) Write(ctx context.Context, about corev1.ObjectReference, eventtype, reason, message string) {
	e := r.correlate(about, eventtype, reason, message)
	if e == nil {
		return
	}
	now := r.clock.Now()
	if now.UnixNano() < r.away.Load() {
		r.queue(e)
		return
	}
	switch err := r.try(ctx, e); {
	case err == nil:
		r.count("written")
	case refused(err):
		r.failed(e.Event, err)
	default:
		r.away.Store(now.Add(awayTime).UnixNano())
		r.queue(e)
	}
}

// Run writes what waits until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	for r.pace.Wait(ctx) == nil {
		select {
		case e := <-r.waiting:
			r.write(ctx, e)
		case <-ctx.Done():
		}
	}
	return nil
}

// Flush writes what waits, once Run has ended.
func (r *Recorder) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	for len(r.waiting) > 0 && r.pace.Wait(ctx) == nil {
		r.write(ctx, <-r.waiting)
	}
	if n := len(r.waiting); n > 0 {
		r.results.WithLabelValues("dropped").Add(float64(n))
		r.log.Warn("events not written before the shutdown", "events", n)
	}
	return nil
}

func (r *Recorder) queue(e *record.EventCorrelateResult) {
	select {
	case r.waiting <- e:
	default:
		r.count("dropped")
	}
}

// write writes an Event, with retries. One that ctx interrupts waits again.
func (r *Recorder) write(ctx context.Context, e *record.EventCorrelateResult) {
	var last error
	_ = wait.ExponentialBackoffWithContext(ctx, retries, func(ctx context.Context) (bool, error) {
		last = r.try(ctx, e)
		return last == nil || refused(last), nil
	})
	switch {
	case last == nil:
		r.count("written")
	case ctx.Err() != nil:
		r.queue(e)
	default:
		r.failed(e.Event, last)
	}
}

// try writes an Event once. That may be repeated: its name and its count stand.
func (r *Recorder) try(ctx context.Context, e *record.EventCorrelateResult) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	events := r.client.CoreV1().Events(e.Event.Namespace)
	if e.Event.Count > 1 {
		_, err := events.Patch(ctx, e.Event.Name, types.StrategicMergePatchType, e.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	if _, err := events.Create(ctx, e.Event, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// refused reports whether the API server does not want an Event, now or later.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

func (r *Recorder) failed(e *corev1.Event, err error) {
	r.count("failed")
	r.log.Warn("event not recorded", "kind", e.InvolvedObject.Kind, "object", e.InvolvedObject.Name,
		"reason", e.Reason, "message", e.Message, "error", err)
}

func (r *Recorder) count(result string) { r.results.WithLabelValues(result).Inc() }
