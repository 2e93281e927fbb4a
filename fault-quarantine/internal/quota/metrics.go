package quota

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Breaker is the name of the budget whose use is also exposed under the names of the earlier
// NVSentinel, for existing dashboards.
const Breaker = "circuitBreaker"

var (
	heldNodes = prometheus.NewDesc("nvsentinel_fault_quarantine_held_nodes",
		"Nodes whose faults are held because a quarantine budget has no free capacity.", nil, nil)
	heldOldest = prometheus.NewDesc("nvsentinel_fault_quarantine_held_oldest_seconds",
		"Time in seconds for which the longest waiting node has been held.", nil, nil)
	used = prometheus.NewDesc("nvsentinel_fault_quarantine_budget_used",
		"Quarantine sessions that use the budget, in the group with the least free capacity.", []string{"budget"}, nil)
	allowed = prometheus.NewDesc("nvsentinel_fault_quarantine_budget_allowed",
		"Quarantine sessions that the budget allows, in the group with the least free capacity.", []string{"budget"}, nil)
	breakerState = prometheus.NewDesc("fault_quarantine_breaker_state",
		"1 for the current state of the budget circuitBreaker, otherwise 0. The state is TRIPPED while the budget has no free capacity, and CLOSED otherwise.", []string{"state"}, nil)
	breakerUse = prometheus.NewDesc("fault_quarantine_breaker_utilization",
		"Ratio of used to allowed quarantine sessions of the budget circuitBreaker. It can be above 1.", nil, nil)
)

// Describe implements prometheus.Collector.
func (q *Queue) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{heldNodes, heldOldest, used, allowed, breakerState, breakerUse} {
		out <- d
	}
}

// Collect implements prometheus.Collector; a standby exposes no series.
func (q *Queue) Collect(out chan<- prometheus.Metric) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok, _ := q.synced(); !ok || !q.open {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := q.clock.Now()
	oldest := 0.0
	for _, w := range q.waiting {
		oldest = max(oldest, now.Sub(w.Since).Seconds())
	}
	gauge(heldNodes, float64(len(q.waiting)))
	gauge(heldOldest, oldest)
	ledger, err := q.counted(now)
	if err != nil {
		return
	}
	for i, u := range ledger.Fullest(now) {
		name := q.rules.Limits[i].Name
		gauge(used, float64(u.Used), name)
		gauge(allowed, float64(u.Allowed), name)
		if name != Breaker {
			continue
		}
		tripped := 0.0
		if u.Used >= u.Allowed {
			tripped = 1
		}
		gauge(breakerState, tripped, "TRIPPED")
		gauge(breakerState, 1-tripped, "CLOSED")
		if u.Allowed > 0 {
			gauge(breakerUse, float64(u.Used)/float64(u.Allowed))
		}
	}
}
