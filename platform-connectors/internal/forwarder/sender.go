package forwarder

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	places "github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// deadline bounds one call of the sink.
const deadline = 30 * time.Second

// Taken is the error of records that the sink will never take.
type Taken struct {
	// ID is that of the first of them, Problem why it is refused.
	ID, Problem string
	// Records counts them.
	Records int
	// Refused is why each of them is refused, by its id.
	Refused map[string]string
}

// Error names the first id.
func (t *Taken) Error() string {
	return fmt.Sprintf("%d of the events were rejected permanently, the first is %s: %s", t.Records, t.ID, t.Problem)
}

// Sink is where records go: the store, or what stands before it. Append is
// idempotent by the record's id and durable when it returns; Dead keeps what can
// never be stored.
type Sink interface {
	Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error)
	Dead(ctx context.Context, deadLetter store.DeadLetter) error
}

// Transformer changes records on their way to the sink. It takes as many from
// the front as it can decide about now, at least one, and returns them changed;
// settled is called with what became of each of them, and is not called when they have
// to be sent again.
type Transformer interface {
	Transform(ctx context.Context, records []record.Record) (out []record.Record, settled func([]store.AppendResult))
}

// Sender takes records through the pipeline to the sink.
type Sender struct {
	Sink      Sink
	Transform Transformer
	// Notices are what people are to know of.
	Notices *Notices
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
}

// Metrics of the forwarding to the sink.
type Metrics struct {
	appended *prometheus.CounterVec
	dead     prometheus.Counter
}

// NewMetrics registers the metrics; dead counts refused records.
func NewMetrics(r prometheus.Registerer, dead prometheus.Counter) *Metrics {
	m := &Metrics{dead: dead, appended: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nvsentinel_connector_records_appended_total",
		Help: "Records sent to the store, by result. The result counted means that the record is not stored because its node is above its quota. The result error counts batches that are retried.",
	}, []string{"result"})}
	for _, result := range []string{store.Appended.String(), store.Duplicate.String(), store.Refused.String(), store.Counted.String(), "error"} {
		m.appended.WithLabelValues(result)
	}
	r.MustRegister(m.appended)
	return m
}

// Append sends records past the spool and returns when the sink has them:
// *Taken when it has all but some that it refused.
// Those are the publisher's to keep.
func (c *Sender) Append(ctx context.Context, records []record.Record) error {
	refused, err := c.send(ctx, records)
	switch {
	case err != nil:
		c.Metrics.appended.WithLabelValues("error").Inc()
		return err
	case len(refused) > 0:
		return taken(refused)
	}
	return nil
}

func taken(refused []refusal) *Taken {
	t := &Taken{ID: refused[0].record.ID, Problem: refused[0].problem, Records: len(refused), Refused: map[string]string{}}
	for _, r := range refused {
		t.Refused[r.record.ID] = r.problem
	}
	return t
}

// sendAll sends what the spool holds: nobody waits for an answer, so what the
// sink refuses is kept as a dead letter there.
func (c *Sender) sendAll(ctx context.Context, records []record.Record) (refused []record.Record, err error) {
	all, err := c.send(ctx, records)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if err := c.bury(ctx, r); err != nil {
			return nil, err
		}
		refused = append(refused, r.record)
	}
	c.Metrics.dead.Add(float64(len(refused)))
	return refused, nil
}

// send takes all records to the sink, in their order, and returns those that
// it refused.
func (c *Sender) send(ctx context.Context, records []record.Record) (refused []refusal, err error) {
	problems := map[string]string{}
	ctx = places.Listen(ctx, func(id, problem string) { problems[id] = problem })
	for len(records) > 0 {
		out, settled := c.Transform.Transform(ctx, records)
		records = records[len(out):]
		for i := range out {
			out[i].Expire(c.Clock.Now().UTC())
		}
		results, err := c.append(ctx, out)
		if err != nil {
			return nil, err
		}
		settled(results)
		counted := 0
		for i, result := range results {
			switch result {
			case store.Refused:
				refused = append(refused, refusal{out[i], cmp.Or(problems[out[i].ID], places.OtherContent)})
			case store.Counted:
				counted++
			case store.Appended, store.Duplicate:
				c.skip(ctx, out[i])
			}
		}
		c.Notices.Add(EventsCounted, counted)
	}
	return refused, nil
}

// skip logs that nothing follows from a PERSIST_ONLY event.
func (c *Sender) skip(ctx context.Context, r record.Record) {
	if !r.Acts() {
		c.Log.DebugContext(ctx, "Skipping PERSIST_ONLY event - no node conditions or K8s events will be created",
			"node", r.Event.NodeName, "checkName", r.Event.CheckName, "id", r.ID)
	}
}

func (c *Sender) append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	results, err := c.Sink.Append(ctx, records)
	if err != nil {
		return nil, fmt.Errorf("appending %d records: %w", len(records), err)
	}
	if len(results) != len(records) {
		return nil, fmt.Errorf("appending %d records: the store returned %d results", len(records), len(results))
	}
	for _, result := range results {
		c.Metrics.appended.WithLabelValues(result.String()).Inc()
	}
	return results, nil
}

// refusal is a record that can never be stored, and why.
type refusal struct {
	record  record.Record
	problem string
}

// bury keeps a record that was refused for good: it must not block what is behind
// it.
func (c *Sender) bury(ctx context.Context, r refusal) error {
	rec := r.record
	body, err := record.AppendJSON(nil, rec)
	if err != nil {
		return fmt.Errorf("encoding record %s: %w", rec.ID, err)
	}
	deadLetter := store.DeadLetter{
		ID: rec.ID, Source: DeadLettersOf(rec.Event.NodeName), Reason: r.problem,
		Body: body, At: c.Clock.Now().UTC(),
	}
	ctx = places.ListenDropped(ctx, func(n int) { c.Notices.Add(DeadLettersDropped, n) })
	if err := c.Sink.Dead(ctx, deadLetter); err != nil {
		return fmt.Errorf("storing the dead letter of record %s: %w", rec.ID, err)
	}
	c.Log.Error("event rejected permanently and dead-lettered",
		"id", rec.ID, "agent", rec.Event.Agent, "check", rec.Event.CheckName, "problem", r.problem)
	return nil
}
