package consume

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label outcome.
const (
	resultSettled = "settled"
	resultWait    = "wait"
	resultPark    = "park"
	resultError   = "error"
	resultIgnored = "ignored" // a delivery without a key
)

// Metrics of one loop. The loop increments the counters. The gauges are read from
// it at the time of a scrape. A nil *Metrics counts nothing.
type Metrics struct {
	handled  *prometheus.CounterVec
	failures *prometheus.CounterVec
	duration prometheus.Histogram
	commits  prometheus.Counter

	queue, unsettled, oldest, stuck, deadLettered, isolation *prometheus.Desc

	mu   sync.Mutex
	loop stater // the running one, or nil
}

// stater is a running loop.
type stater interface{ state() gauges }

// gauges of a loop at the time of a scrape.
type gauges struct {
	queue, unsettled, oldest, stuck, deadLettered, isolation float64
}

// Names of the metrics of a loop. Two are complete names, because some services use names of
// the earlier NVSentinel there.
type Names struct {
	// Namespace is the prefix of the other names, for example nvsentinel_fault_quarantine.
	Namespace string
	// Handling is the name of the histogram of handlings, Depth that of the queue depth.
	Handling, Depth string
}

// NewMetrics registers a loop's metrics.
func NewMetrics(registerer prometheus.Registerer, names Names) *Metrics {
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, nil, nil)
	}
	m := &Metrics{
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: names.Namespace, Name: "keys_handled_total", Help: "Keys of the work queue that were handled, by outcome.",
		}, []string{"outcome"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: names.Namespace, Name: "source_failures_total", Help: "Failures to read the backlog, the change feed or another source, or to store a checkpoint, by source.",
		}, []string{"source"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: names.Handling, Help: "Duration of the handling of one key in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		commits: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: names.Namespace, Name: "checkpoints_total", Help: "Checkpoints of the change feed that were stored.",
		}),
		queue:        gauge(names.Depth, "Keys that wait in the work queue."),
		unsettled:    gauge(names.Namespace+"_unsettled_deliveries", "Deliveries of the change feed that are not settled. At most two deliveries of a key are counted."),
		oldest:       gauge(names.Namespace+"_oldest_unsettled_seconds", "Age of the oldest unsettled work in seconds."),
		stuck:        gauge(names.Namespace+"_stuck", "1 while work is held, or an input cannot be read, for longer than the limit, otherwise 0."),
		deadLettered: gauge(names.Namespace+"_dead_lettered_records", "Records that crashed the process and are skipped until an operator retries them."),
		isolation:    gauge(names.Namespace+"_crash_loop_isolation", "1 while the service handles one item at a time after repeated early crashes, otherwise 0."),
	}
	registerer.MustRegister(m)
	return m
}

// Describe is part of prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(out)
	}
	for _, d := range []*prometheus.Desc{m.queue, m.unsettled, m.oldest, m.stuck, m.deadLettered, m.isolation} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(out)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var g gauges
	if m.loop != nil {
		g = m.loop.state()
	}
	for desc, value := range map[*prometheus.Desc]float64{
		m.queue: g.queue, m.unsettled: g.unsettled, m.oldest: g.oldest, m.stuck: g.stuck, m.deadLettered: g.deadLettered, m.isolation: g.isolation,
	} {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.handled, m.failures, m.duration, m.commits}
}

// attach sets the running loop, or nil when it has ended.
func (m *Metrics) attach(l stater) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loop = l
}

func (m *Metrics) observe(result string, took time.Duration) {
	if m == nil {
		return
	}
	m.handled.WithLabelValues(result).Inc()
	if result != resultIgnored {
		m.duration.Observe(took.Seconds())
	}
}

func (m *Metrics) failed(source string) {
	if m != nil {
		m.failures.WithLabelValues(source).Inc()
	}
}

func (m *Metrics) committed() {
	if m != nil {
		m.commits.Inc()
	}
}

// Ready reports whether the loop keeps up, and the cause if it does not. A loop that has
// not started is a standby, which is ready; one that reads its backlog is not.
func (l *Loop[R]) Ready() (ok bool, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.phase {
	case idle:
		return true, "standing by"
	case catchingUp:
		for source, what := range map[string]string{opening: opening, "backlog": "reading the backlog"} {
			if h, failing := l.trouble[source]; failing {
				return false, what + " fails: " + h.why
			}
		}
		return false, "reading the backlog"
	case stopped:
		return false, "stopped"
	case live:
	}
	now := l.Clock.Now()
	if what, h, found := l.longest(now); found {
		return false, fmt.Sprintf("%s held for %s: %s", what, now.Sub(h.since).Round(time.Second), h.why)
	}
	return true, fmt.Sprintf("live, %d unsettled", l.tracker.unsettled)
}

// longest finds what has been held longer than StuckAfter, the oldest first.
// The caller holds the lock.
func (l *Loop[R]) longest(now time.Time) (what string, longest pendingKey, found bool) {
	consider := func(name string, h pendingKey) {
		if now.Sub(h.since) >= l.StuckAfter && (!found || h.since.Before(longest.since)) {
			what, longest, found = name, h, true
		}
	}
	for key, h := range l.pending {
		consider(title(key), h)
	}
	for name, h := range l.trouble {
		if !h.over(now) {
			consider(name, h)
		}
	}
	if key, at, ok := l.tracker.oldest(); ok {
		why := "waiting for a worker"
		if h, known := l.pending[key]; known {
			why = h.why
		}
		consider(title(key), pendingKey{since: at, why: why})
	}
	return what, longest, found
}

// title returns a key as text.
func title(key string) string {
	if key == keyless {
		return "a delivery without a key"
	}
	return "key " + key
}

// state returns the values of the gauges.
func (l *Loop[R]) state() gauges {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Clock.Now()
	g := gauges{queue: float64(l.queue.Len()), unsettled: float64(l.tracker.unsettled)}
	if _, at, ok := l.tracker.oldest(); ok {
		g.oldest = now.Sub(at).Seconds()
	}
	for _, h := range l.pending {
		g.oldest = max(g.oldest, now.Sub(h.since).Seconds())
	}
	if _, _, stuck := l.longest(now); stuck {
		g.stuck = 1
	}
	if l.Vet != nil {
		g.deadLettered = float64(l.Vet.Memory.Count())
	}
	if l.crashLoop.Isolates() {
		g.isolation = 1
	}
	return g
}
