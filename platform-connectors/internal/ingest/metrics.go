package ingest

import (
	"github.com/prometheus/client_golang/prometheus"

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
	reasonFull        = "spool-full"
	reasonUnavailable = "unavailable"
	reasonStoreAway   = "store-away"
	reasonTaken       = "id-taken"
	reasonCrowded     = "connections"
)

// NewMetrics registers the server's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "platform_connector_accepted_total",
			Help: "Events acknowledged after they were durable, by processing strategy.",
		}, []string{"strategy"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "platform_connector_refused_total",
			Help: "Batches that were refused whole, and events of other batches that were not accepted, by reason.",
		}, []string{"reason"}),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "platform_connector_cuts_total",
			Help: "Accepted events from which something was cut or replaced, by what.",
		}, []string{"what"}),
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
	for _, reason := range append(authn.Reasons(), reasonFull, reasonUnavailable, reasonStoreAway, reasonTaken, reasonCrowded) {
		m.refused.WithLabelValues(reason)
	}
	m.persistOnly = &persistOnly{}
	r.MustRegister(m.accepted, m.refused, m.cuts, m.persistOnly)
	return m
}

// crowded counts a connection that was closed because there are too many.
func (m *Metrics) crowded() { m.refused.WithLabelValues(reasonCrowded).Inc() }

// count takes in an acknowledged batch.
func (m *Metrics) count(admitted []admission.Admitted) {
	for _, a := range admitted {
		m.accepted.WithLabelValues(string(a.Event.ProcessingStrategy)).Inc()
		m.persistOnly.hear(a.Event)
		for _, cut := range a.Cuts {
			m.cuts.WithLabelValues(string(cut)).Inc()
		}
	}
}
