package gateway

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Window is how many bytes of a request a caller may send ahead of being read.
const Window = window

// Introduction is how long a connection may be open before a token was verified on it.
const Introduction = introduction

// Forgive forgets refused tokens, for tests whose attackers share an address.
func (c *Callers) Forgive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers = nil
}

// PendingReviews is how many calls wait for a verdict about their token.
func (c *Callers) PendingReviews() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pendingReviews
}

// Busy is how many calls of a node are under way.
func (g *Gateway) Busy(node string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.busy[node]; n != nil {
		return n.calls
	}
	return 0
}

// Waiting is how many requests wait for memory, InFlightBytes how many bytes requests hold.
func (g *Gateway) Waiting() int { return int(testutil.ToFloat64(g.Metrics.waiting)) }

func (g *Gateway) InFlightBytes() int { return int(testutil.ToFloat64(g.Metrics.inFlightBytes)) }

// Refused is how many connections were refused for a reason.
func (m *Metrics) Refused(why Refused) int {
	return int(testutil.ToFloat64(m.turnedAway.WithLabelValues(string(why))))
}

// Calls is how many calls were answered.
func (m *Metrics) Calls(name string) (n int) {
	answered := make(chan prometheus.Metric)
	go func() {
		defer close(answered)
		m.calls.Collect(answered)
	}()
	for metric := range answered {
		var out dto.Metric
		if err := metric.Write(&out); err != nil {
			panic(err)
		}
		for _, l := range out.GetLabel() {
			if l.GetName() == "method" && l.GetValue() == name {
				n += int(out.GetCounter().GetValue())
			}
		}
	}
	return n
}

// OverQuota is how many records were counted or changed by a verdict.
func (m *Metrics) OverQuota(verdict forwardpolicy.Verdict) int {
	return int(testutil.ToFloat64(m.overQuota.WithLabelValues(string(verdict))))
}

// Shares are those of nodes that are a metric.
func (m *Metrics) Shares() map[string]float64 {
	out, found := map[string]float64{}, make(chan prometheus.Metric)
	go func() {
		defer close(found)
		m.share.Collect(found)
	}()
	for metric := range found {
		var one dto.Metric
		if err := metric.Write(&one); err != nil {
			panic(err)
		}
		out[one.GetLabel()[0].GetValue()] = one.GetGauge().GetValue()
	}
	return out
}

// MustExchange exchanges at once what nodes have brought.
func (q *Quotas) MustExchange(t *testing.T) {
	t.Helper()
	if err := q.exchange(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Decide decides about the records of one call, of so many bytes each, which the store
// takes.
func (g *Gateway) Decide(node string, records []record.Record, size int64) error {
	c := &call{ctx: context.Background(), caller: forwardpolicy.Caller{Node: node}}
	a := g.allow(c, "")
	defer a.end()
	var results []store.AppendResult
	for _, r := range records {
		_, verdict, err := a.decide(r, size)
		if err != nil {
			break // it waits for its turn
		}
		if !verdict.Counted() {
			results = append(results, store.Appended)
		}
	}
	return a.settle(results, "")
}
