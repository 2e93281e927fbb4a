package ingest

import (
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
)

// Metrics of the server.
type Metrics struct {
	accepted    *prometheus.CounterVec
	refused     *prometheus.CounterVec
	cuts        *prometheus.CounterVec
	persistOnly *persistOnly
}

// Reasons of refusals that are not the event's, as label values.
const (
	// reasonFull: the write-ahead log is full because the store does not accept records, so the request is refused
	// and sent again later. Action: restore the store or the gateway (`nvsentinel status`), or raise
	// `--wal-max-bytes`.
	reasonFull = "wal-full"
	// reasonUnavailable: the disk, the store or the gateway did not answer in time, so the request is refused and
	// sent again later. Action: none for a few minutes. If it lasts, read the log of the connector, and check its
	// disk, the gateway and the store.
	reasonUnavailable = "unavailable"
	// reasonTaken: the store or the gateway refuses a health event of an agent with `clusterWide = true` permanently,
	// for example because its id is stored with other content, so the event is rejected. Action: read the cause in
	// the Event `EventsRejected` of the Node and correct the service that sent the event.
	reasonTaken = "id-taken"
	// reasonCrowded: the connector has 64 connections, so a further one is closed at once. Action: find out which
	// process on the node opens many connections to the socket.
	reasonCrowded = "too-many-connections"
)

// NewMetrics registers the server's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_events_accepted_total",
			Help: "Events that were stored durably and acknowledged, by processing strategy.",
		}, []string{"strategy"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_rejections_total",
			Help: "Batches that were rejected completely, and events of other batches that were not accepted, by reason.",
		}, []string{"reason"}),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_events_sanitized_total",
			Help: "Accepted events with content that was truncated, removed or replaced, by reason.",
		}, []string{"reason"}),
	}
	for _, s := range []record.Strategy{record.Process, record.PersistOnly} {
		m.accepted.WithLabelValues(string(s))
	}
	for _, c := range admission.Cuts() {
		m.cuts.WithLabelValues(string(c))
	}
	for _, reason := range admission.Reasons() {
		m.refused.WithLabelValues(string(reason))
	}
	for _, reason := range append(authn.Reasons(), reasonFull, reasonUnavailable, reasonTaken, reasonCrowded) {
		m.refused.WithLabelValues(reason)
	}
	m.persistOnly = &persistOnly{}
	r.MustRegister(m.accepted, m.refused, m.cuts, m.persistOnly)
	return m
}

// crowded counts a connection that was closed because there are too many.
func (m *Metrics) crowded() { m.refused.WithLabelValues(reasonCrowded).Inc() }

// count counts an acknowledged batch.
func (m *Metrics) count(admitted []admission.Admitted) {
	for _, a := range admitted {
		m.accepted.WithLabelValues(string(a.Event.ProcessingStrategy)).Inc()
		m.persistOnly.hear(a.Event)
		for _, cut := range a.Cuts {
			m.cuts.WithLabelValues(string(cut)).Inc()
		}
	}
}

// The earlier NVSentinel gives processingStrategy other numbers: 1 acts, 2 and 3 are
// for the record only, and an event without a number acts.
const (
	earlierActs    protos.ProcessingStrategy = 1
	earlierStores  protos.ProcessingStrategy = 2
	earlierAnalyse protos.ProcessingStrategy = 3
)

// numbers reads the strategies of publishers whose numbers are those of the earlier
// NVSentinel. Nothing on the wire shows it, but an event with an id is not from it.
type numbers struct {
	// of are the agents that an operator named.
	of map[string]bool

	mu sync.Mutex
	// loggedAgents are the agents of which the log has spoken.
	loggedAgents map[string]bool
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

// logLegacyAgents names, once each, agents that may be monitors of the earlier NVSentinel and
// are not known as such. The events were accepted.
func (n *numbers) logLegacyAgents(log *slog.Logger, events []*protos.HealthEvent) {
	for _, e := range events {
		agent, number := e.GetAgent(), e.GetProcessingStrategy()
		if number == protos.ProcessingStrategy_PROCESS || e.GetId() != "" || n.of[agent] || !n.first(agent) {
			continue
		}
		log.Warn("faults of an agent are PERSIST_ONLY and lead to no action: if it is a monitor of the earlier NVSentinel, where this strategy number means PROCESS, "+
			"set legacyStrategyNumbers = true in its publishers.agent (docs/tasks/migrate-from-nvsentinel.md)",
			"agent", agent, "processingStrategy", int32(number))
	}
}

// first reports whether an agent was not logged before.
func (n *numbers) first(agent string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.loggedAgents[agent] || len(n.loggedAgents) >= maxHeard {
		return false
	}
	if n.loggedAgents == nil {
		n.loggedAgents = map[string]bool{}
	}
	n.loggedAgents[agent] = true
	return true
}
