package report

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/delay"
	"github.com/nvidia/nvsentinel/internal/outage"
)

// Bounds of one request.
const (
	batchEvents = 100
	batchBytes  = MaxEventBytes
	// Deadline bounds one request to the connector.
	Deadline = 10 * time.Second
)

// Pauses between requests that fail; chance makes one up to half as long again.
// The connector is a socket of the node: together with the pause until the next
// connection (see Dial), events go out within two seconds of its return.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 900 * time.Millisecond
)

// Queue is what a Publisher empties: an Outbox, or another durable queue of events
// that have their id, seq and epoch.
type Queue interface {
	// Peek returns the oldest durable entries, as Outbox.Peek does.
	Peek(count, bytes int) ([]Entry, error)
	// Remove takes acknowledged entries out.
	Remove(seqs ...uint64) error
	// Bury takes out an entry that was refused for good.
	Bury(seq uint64, reason string) error
	// Changed is closed at the next change of what Peek returns.
	Changed() <-chan struct{}
}

// Publisher empties an outbox into the platform connector, oldest first, one
// request at a time. An entry leaves the outbox only after its OK.
//
// InvalidArgument is the only answer that condemns an event: its batch is sent
// again one by one and the refused ones become dead letters. Every other error,
// also one about the publisher itself (Unauthenticated, PermissionDenied), is
// tried again for ever, because the same event is right once the cause is gone.
type Publisher struct {
	// Name is the agent, used for crash points.
	Name      string
	Outbox    Queue
	Connector protos.PlatformConnectorClient
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   *Metrics

	outage outage.Outage
}

// Ready says whether the last request was acknowledged, and if not, why. Before
// the first request it is ready.
func (p *Publisher) Ready() (bool, string) { return p.outage.Ready() }

// Run publishes until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval, pace.Multiplier = firstPause, mostPause, 2
	pace.Reset()
	for ctx.Err() == nil {
		changed := p.Outbox.Changed()
		batch, err := p.Outbox.Peek(batchEvents, batchBytes)
		if err == nil && len(batch) == 0 {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if err == nil {
			err = p.deliver(ctx, batch)
		}
		p.note(err)
		if err == nil {
			pace.Reset()
			continue
		}
		delay.For(ctx, p.Clock, pace.NextBackOff())
	}
	return nil
}

// note logs the first failure of a row and its end, not every try.
func (p *Publisher) note(err error) {
	switch begins, ends := p.outage.Note(err); {
	case begins:
		p.Log.Warn("platform connector did not take events; the outbox keeps them", "error", err)
	case ends:
		p.Log.Info("platform connector takes events again")
	}
}

// deliver sends a batch and takes it out; a refused batch is sent one by one.
func (p *Publisher) deliver(ctx context.Context, batch []Entry) error {
	whole := true
	for _, e := range batch {
		whole = whole && e.Event != nil
	}
	if whole {
		err := p.send(ctx, batch)
		if err == nil {
			return p.remove(batch)
		}
		if status.Code(err) != codes.InvalidArgument {
			return fmt.Errorf("sending %d events: %w", len(batch), err)
		}
	}
	for i := range batch {
		if err := p.deliverOne(ctx, batch[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (p *Publisher) deliverOne(ctx context.Context, one []Entry) error {
	err := one[0].Err
	if one[0].Event != nil {
		err = p.send(ctx, one)
		if err == nil {
			return p.remove(one)
		}
		if status.Code(err) != codes.InvalidArgument {
			return fmt.Errorf("sending event %d: %w", one[0].Seq, err)
		}
	}
	p.Log.Error("event was refused for good and is a dead letter now",
		"seq", one[0].Seq, "id", one[0].Event.GetId(), "error", err)
	if err := p.Outbox.Bury(one[0].Seq, err.Error()); err != nil {
		return err
	}
	p.Metrics.DeadLetters.Inc()
	return nil
}

func (p *Publisher) send(ctx context.Context, batch []Entry) error {
	events := &protos.HealthEvents{Version: 1}
	for _, e := range batch {
		events.Events = append(events.Events, e.Event)
	}
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	_, err := p.Connector.HealthEventOccurredV1(ctx, events)
	if err != nil {
		p.Metrics.Failures.WithLabelValues(status.Code(err).String()).Inc()
		return err
	}
	crashpoint.Here(p.Name + "/published")
	for _, e := range batch {
		p.Metrics.Published.WithLabelValues(e.Event.GetProcessingStrategy().String()).Inc()
	}
	return nil
}

func (p *Publisher) remove(batch []Entry) error {
	seqs := make([]uint64, len(batch))
	for i, e := range batch {
		seqs[i] = e.Seq
	}
	if err := p.Outbox.Remove(seqs...); err != nil {
		return err
	}
	crashpoint.Here(p.Name + "/removed")
	return nil
}
