package matching

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// publish sends one event and returns when it is stored: the connector acknowledges the
// events of a publisher for all nodes only then. An event that is refused for good is kept
// for a person, so that it holds up nothing behind it.
func (m *Matcher) publish(ctx context.Context, e record.Event) error {
	ctx, release := lease.Fence(ctx)
	defer release()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publishing %s: the lease may belong to another replica: %w", e.CheckName, err)
	}
	event := record.ToProto(e)
	err := report.Sender{Connector: m.Connector}.One(ctx, event)
	refused, is := errors.AsType[*report.Refused](err)
	switch {
	case is:
		return m.bury(ctx, event, refused.Cause)
	case err != nil:
		m.Metrics.Failures.WithLabelValues(status.Code(err).String()).Inc()
		return fmt.Errorf("publishing %s of node %s: %w", e.CheckName, e.NodeName, err)
	}
	crashpoint.Here(record.AnalyzerAgent + "/published")
	kind := "fault"
	if e.IsHealthy {
		kind = "recovery"
	}
	m.Metrics.Published.WithLabelValues(kind, string(e.ProcessingStrategy)).Inc()
	return nil
}

func (m *Matcher) bury(ctx context.Context, event *protos.HealthEvent, cause error) error {
	body, err := proto.Marshal(event)
	if err != nil {
		return fmt.Errorf("storing a rejected event: %w", err)
	}
	deadLetter := store.DeadLetter{ID: event.GetId(), Source: record.AnalyzerAgent, Reason: cause.Error(), Body: body, At: m.Clock.Now()}
	if err := m.Records.Dead(ctx, deadLetter); err != nil {
		return fmt.Errorf("storing a rejected event: %w", err)
	}
	m.Metrics.DeadLetters.Inc()
	m.Log.Error("event rejected permanently and dead-lettered", "id", event.GetId(), "rule", event.GetCheckName(), "error", cause)
	return nil
}

// lookUp finds a source that the window does not hold, and what may have ended it.
func (m *Matcher) lookUp(ctx context.Context, w *decision.Window, id string) error {
	r, err := m.Records.Get(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		w.Expire(id)
	case err != nil:
		return fmt.Errorf("reading source %s: %w", id, err)
	case !r.Acts():
		w.Expire(id)
	default:
		w.Add(factOf(r))
		return m.recoveries(ctx, w, r)
	}
	return nil
}
