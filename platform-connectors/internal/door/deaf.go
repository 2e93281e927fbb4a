package door

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// maxHeard bounds the agents that are told apart; the rest counts as none.
const maxHeard = 256

// deaf counts the agents whose every event since the start was PERSIST_ONLY.
// That may be meant; it is also what a client of NVSentinel's predecessor looks
// like, whose number for acting is PERSIST_ONLY's: its faults are stored and
// nothing is done about them.
type deaf struct {
	mu sync.Mutex
	// acted says of each agent that was heard whether any event was PROCESS.
	acted map[string]bool
}

// hear books an acknowledged event.
func (d *deaf) hear(e record.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	acted, known := d.acted[e.Agent]
	if !known && len(d.acted) >= maxHeard {
		return
	}
	if d.acted == nil {
		d.acted = map[string]bool{}
	}
	d.acted[e.Agent] = acted || e.ProcessingStrategy == record.Process
}

var deafAgents = prometheus.NewDesc("platform_connector_persist_only_agents",
	"Agents whose every event since the start was PERSIST_ONLY, by agent: nothing acts on what they report.", []string{"agent"}, nil)

// Describe implements prometheus.Collector.
func (d *deaf) Describe(out chan<- *prometheus.Desc) { out <- deafAgents }

// Collect implements prometheus.Collector.
func (d *deaf) Collect(out chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for agent, acted := range d.acted {
		if !acted {
			out <- prometheus.MustNewConstMetric(deafAgents, prometheus.GaugeValue, 1, agent)
		}
	}
}
