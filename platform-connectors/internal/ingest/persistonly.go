package ingest

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// maxHeard bounds the agents that are told apart; the rest counts as none.
const maxHeard = 256

// persistOnly counts the agents whose every event since the start was PERSIST_ONLY.
// That may be meant; it is also what a client of NVSentinel's predecessor looks
// like, whose number for acting is PERSIST_ONLY's: its faults are stored and
// nothing is done about them.
type persistOnly struct {
	mu sync.Mutex
	// acted says of each agent that was heard whether any event was PROCESS.
	acted map[string]bool
}

// hear notes an acknowledged event.
func (p *persistOnly) hear(e record.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	acted, known := p.acted[e.Agent]
	if !known && len(p.acted) >= maxHeard {
		return
	}
	if p.acted == nil {
		p.acted = map[string]bool{}
	}
	p.acted[e.Agent] = acted || e.ProcessingStrategy == record.Process
}

var persistOnlyAgents = prometheus.NewDesc("platform_connector_persist_only_agents",
	"Agents whose every event since the start was PERSIST_ONLY, by agent: nothing acts on what they report.", []string{"agent"}, nil)

// Describe implements prometheus.Collector.
func (p *persistOnly) Describe(out chan<- *prometheus.Desc) { out <- persistOnlyAgents }

// Collect implements prometheus.Collector.
func (p *persistOnly) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent, acted := range p.acted {
		if !acted {
			out <- prometheus.MustNewConstMetric(persistOnlyAgents, prometheus.GaugeValue, 1, agent)
		}
	}
}
