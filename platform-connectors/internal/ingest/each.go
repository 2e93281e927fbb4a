package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
)

// HealthEventOccurredV2 is a batch that came otherwise than over the socket.
func (d *Server) HealthEventOccurredV2(ctx context.Context, batch *protos.HealthEvents) (*protos.HealthEventResults, error) {
	caller, wide, err := d.Authenticator.Enter(ctx)
	if err != nil {
		return nil, d.refuse(err)
	}
	return d.each(ctx, sender{caller, wide}, batch)
}

// answers are those for a batch, while it is decided.
type answers struct {
	results []*protos.HealthEventResult
	// rejected counts the rejections by their text, and why by their reason.
	rejected map[string]int
	why      map[string]int
}

func newAnswers(n int) *answers {
	a := &answers{results: make([]*protos.HealthEventResult, n), rejected: map[string]int{}, why: map[string]int{}}
	for i := range a.results {
		a.results[i] = &protos.HealthEventResult{Outcome: protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED}
	}
	return a
}

// reject answers that an event will never be accepted.
func (a *answers) reject(i int, reason, problem string) {
	a.results[i] = &protos.HealthEventResult{Outcome: protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_REJECTED, Problem: problem}
	a.rejected[problem]++
	a.why[reason]++
}

// retry answers that an event is to be sent again.
func (a *answers) retry(i int, reason, problem string) {
	a.results[i] = &protos.HealthEventResult{Outcome: protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_RETRY, Problem: problem}
	a.why[reason]++
}

// each accepts the events of a batch that can be accepted, and reports for the others
// whether they ever can. An error is about the whole batch: nothing was accepted, and
// the publisher sends all of it again.
func (d *Server) each(ctx context.Context, from sender, batch *protos.HealthEvents) (*protos.HealthEventResults, error) {
	crashpoint.Here("platform-connectors/received")
	events := batch.GetEvents()
	if n := len(events); n > admission.MaxEvents {
		return nil, d.refuse(&admission.Refusal{Field: "events", Reason: admission.TooMany, Problem: fmt.Sprintf("%d events in one batch, at most %d", n, admission.MaxEvents)})
	}
	d.numbers.translate(events)
	out := newAnswers(len(events))
	admitted, of := d.admitEach(from, events, out)
	admitted, of, err := d.speakEach(from, admitted, of, out)
	if err != nil {
		return nil, d.refuse(err)
	}
	records, err := d.records(ctx, admitted, from.wide)
	if err != nil {
		return nil, d.refuse(err)
	}
	if err := d.append(ctx, from, records); !d.taken(err, records, of, out) {
		return nil, d.refuse(err)
	}
	crashpoint.Here("platform-connectors/spooled")
	d.settle(admitted, of, out)
	d.numbers.logLegacyAgents(d.Log, events)
	return &protos.HealthEventResults{Results: out.results}, nil
}

// admitEach are the events that are well-formed, each with its place in the batch.
func (d *Server) admitEach(from sender, events []*protos.HealthEvent, out *answers) (admitted []admission.Admitted, of []int) {
	node := d.speaksFor(from)
	for i, p := range events {
		e, cuts, refusal := admission.Normalise(p, node)
		if refusal != nil {
			out.reject(i, string(refusal.Reason), refusal.Error())
			continue
		}
		admitted, of = append(admitted, admission.Admitted{Event: e, Cuts: cuts}), append(of, i)
	}
	return admitted, of
}

// speakEach are the events that their sender may send.
func (d *Server) speakEach(from sender, admitted []admission.Admitted, of []int, out *answers) (kept []admission.Admitted, at []int, err error) {
	events := make([]record.Event, len(admitted))
	for i, a := range admitted {
		events[i] = a.Event
	}
	denied, err := d.Authenticator.SpeakEach(from.caller, events)
	if err != nil {
		return nil, nil, err
	}
	for i, no := range denied {
		switch {
		case no == nil:
			kept, at = append(kept, admitted[i]), append(at, of[i])
		case no.OfEvent():
			out.reject(of[i], no.Reason, no.Problem)
		default:
			out.retry(of[i], no.Reason, no.Problem)
		}
	}
	return kept, at, nil
}

// append hands records on. The order of their ids is that of the records.
func (d *Server) append(ctx context.Context, from sender, records []record.Record) error {
	if len(records) == 0 {
		return nil
	}
	if from.wide {
		return d.Direct.Append(ctx, records)
	}
	return d.Spool.Append(ctx, records)
}

// taken reports whether the records were taken, all or all but some that the store refuses
// for good, which are rejected then.
func (d *Server) taken(err error, records []record.Record, of []int, out *answers) bool {
	refused, ok := errors.AsType[*forwarder.Taken](err)
	if err != nil && !ok {
		return false
	}
	if ok {
		for i, r := range records {
			if problem, is := refused.Refused[r.ID]; is {
				out.reject(of[i], reasonTaken, problem)
			}
		}
	}
	return true
}

// settle counts what was accepted, and reports what was rejected.
func (d *Server) settle(admitted []admission.Admitted, of []int, out *answers) {
	var accepted []admission.Admitted
	for i, a := range admitted {
		if out.results[of[i]].GetOutcome() == protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED {
			accepted = append(accepted, a)
		}
	}
	d.Metrics.count(accepted)
	for reason, n := range out.why {
		d.Metrics.refused.WithLabelValues(reason).Add(float64(n))
	}
	for problem, n := range out.rejected {
		if d.Rejected != nil {
			d.Rejected(problem, n)
		}
	}
}

// maxHeard bounds the agents that are distinguished; the rest counts as none.
const maxHeard = 256

// persistOnly counts the agents whose every event since the start was PERSIST_ONLY.
// That may be meant; it is also what a client of NVSentinel's predecessor looks
// like, whose number for acting is PERSIST_ONLY's: its faults are stored and
// nothing is done about them.
type persistOnly struct {
	mu sync.Mutex
	// acted is, for each agent that was heard, whether any event was PROCESS.
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

var persistOnlyAgents = prometheus.NewDesc("nvsentinel_connector_persist_only_agents",
	"1 for each agent that has sent only PERSIST_ONLY events since the start of the process. No service acts on its events.", []string{"agent"}, nil)

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
