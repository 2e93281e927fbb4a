package ingest

import (
	"log/slog"
	"sync"

	"github.com/nvidia/nvsentinel/api/protos"
)

// The earlier NVSentinel gives processingStrategy other numbers: 1 acts, 2 and 3 are
// for the record only, and what is not said acts.
const (
	earlierActs    protos.ProcessingStrategy = 1
	earlierStores  protos.ProcessingStrategy = 2
	earlierAnalyse protos.ProcessingStrategy = 3
)

// numbers reads the strategies of publishers whose numbers are those of the earlier
// NVSentinel. Nothing on the wire says so; but an event with an id is none of its.
type numbers struct {
	// of are the agents that an operator named.
	of map[string]bool

	mu sync.Mutex
	// told are the agents of which the log has spoken.
	told map[string]bool
}

// translate gives the events of such agents our numbers.
func (n *numbers) translate(events []*protos.HealthEvent) {
	for _, e := range events {
		if !n.of[e.GetAgent()] || e.GetId() != "" {
			continue
		}
		switch e.GetProcessingStrategy() {
		case earlierActs:
			e.ProcessingStrategy = protos.ProcessingStrategy_PROCESS
		case earlierStores, earlierAnalyse:
			e.ProcessingStrategy = protos.ProcessingStrategy_PERSIST_ONLY
		default: // 0 acts there and here; of what nobody knows nothing is made
		}
	}
}

// tell names, once each, agents that may be monitors of the earlier NVSentinel and
// are not known as such. The events were accepted.
func (n *numbers) tell(log *slog.Logger, events []*protos.HealthEvent) {
	for _, e := range events {
		agent, number := e.GetAgent(), e.GetProcessingStrategy()
		if number == protos.ProcessingStrategy_PROCESS || e.GetId() != "" || n.of[agent] || !n.first(agent) {
			continue
		}
		log.Warn("an agent's faults are for the record only: nothing acts on them. If it is a monitor of the earlier NVSentinel, where this number acts, "+
			"set earlierStrategyNumbers = true in its publishers.agent (docs/coming-from-nvsentinel.md)",
			"agent", agent, "processingStrategy", int32(number))
	}
}

// first says whether an agent was not told of before.
func (n *numbers) first(agent string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told[agent] || len(n.told) >= maxHeard {
		return false
	}
	if n.told == nil {
		n.told = map[string]bool{}
	}
	n.told[agent] = true
	return true
}
