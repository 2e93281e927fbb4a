// Package delivery sends every stored record to the receiver: in order per node,
// at least once, with the position stored after the effect and never before.
package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/event-exporter/internal/sender"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Receiver takes events.
type Receiver interface {
	Send(ctx context.Context, events []event.Event) sender.Result
}

// Pauses between two tries of the same events.
type Pauses struct {
	Initial, Longest time.Duration
	Multiplier       float64
}

// Exporter stands between store and receiver.
type Exporter struct {
	// Records are the store's, which keeps what no receiver will take as dead letters.
	Records  store.Store
	Receiver Receiver
	Frame    cloudevent.Frame
	Policy   cloudevent.Policy
	Pauses   Pauses
	// Partitions is how many requests are under way at once, Batch how many events
	// one of them carries at most.
	Partitions, Batch int
	// LookBack is how far back the first start on a store begins.
	LookBack time.Duration
	// Rate bounds the records per second of which each is older than five
	// minutes; 0 is no bound.
	Rate float64
	// MaxLag is the age of the oldest undelivered record from which on the
	// service is not ready; 0 never.
	MaxLag  time.Duration
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics

	partitions map[string]*partition
	turn       turn
	breaker    breaker
	service    *consumer.Service
}

// Consumer is the exporter's name in the store.
const Consumer = "event-exporter"

// Service makes the exporter a consumer of the store, once: it sends the records
// themselves, each after its turn, and begins with the look-back if the exporter never
// ran on this store.
func (ex *Exporter) Service() *consumer.Service {
	ex.partitions = ex.newPartitions()
	if ex.Rate > 0 {
		ex.turn.limit = rate.NewLimiter(rate.Limit(ex.Rate), max(1, int(ex.Rate)))
	}
	ex.service = &consumer.Service{
		Name: Consumer, Metrics: consume.Names{
			Namespace: "nvsentinel_exporter", Handling: "nvsentinel_exporter_event_handling_duration_seconds",
			Depth: "nvsentinel_exporter_queue_depth",
		}, Store: ex.Records, Selector: record.AllHealthEventInserts(),
		Since: func() time.Time { return ex.Clock.Now().Add(-ex.LookBack) }, Key: ex.key, Items: ex.Send, Weight: weight, Pace: ex.pace, Workers: ex.Partitions,
	}
	return ex.service
}

func (ex *Exporter) key(r record.Record) string {
	ex.Metrics.received.WithLabelValues(string(r.Event.ProcessingStrategy)).Inc()
	return ex.partitionOf(r)
}

// Send sends the first records of a partition in one request; done are those that are
// delivered or buried.
func (ex *Exporter) Send(ctx context.Context, name string, records []record.Record) (done int, err error) {
	one := ex.partitions[name]
	if err := ex.mayGo(one); err != nil {
		return 0, err
	}
	return ex.deliver(ctx, one, records[:min(len(records), one.size)])
}

// mayGo waits out the pauses of the partition and of everyone.
func (ex *Exporter) mayGo(one *partition) error {
	now := ex.Clock.Now()
	if until, why, tripped := ex.breaker.tripped(now); tripped {
		return retry.Wait(until.Sub(now), why)
	}
	if one.notBefore.After(now) {
		return retry.Wait(one.notBefore.Sub(now), one.why)
	}
	return nil
}

// deliver sends one request with the batch, or its beginning, and does what the
// answer asks for. It returns how many of the batch are settled.
func (ex *Exporter) deliver(ctx context.Context, one *partition, batch []record.Record) (done int, err error) {
	events, broken := ex.encode(batch)
	if len(events) == 0 {
		facts := cloudevent.Facts{Events: 1, Unencodable: true}
		return ex.applyResult(ctx, one, batch[:1], sender.Result{Facts: facts, Detail: broken.Error()})
	}
	// A leader that lost its lease sends nothing more.
	fenced, cancel := lease.Fence(ctx)
	defer cancel()
	if fenced.Err() != nil {
		return 0, retry.Wait(time.Second, "the lease is not renewed, retrying")
	}
	began := ex.Clock.Now()
	result := ex.Receiver.Send(fenced, events)
	ex.Metrics.duration.Observe(ex.Clock.Since(began).Seconds())
	if ctx.Err() != nil && result.Status == 0 {
		return 0, ctx.Err() // cut short by the end of the process
	}
	return ex.applyResult(ctx, one, batch[:len(events)], result)
}

// encode makes the events of the batch, up to the first record that makes none.
func (ex *Exporter) encode(batch []record.Record) ([]event.Event, error) {
	events := make([]event.Event, 0, len(batch))
	for _, r := range batch {
		crashpoint.DieOf(r.Event.Message)
		e, err := ex.Frame.Of(r)
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// Try makes what would be sent of a record, and sends nothing.
func (ex *Exporter) Try(_ context.Context, r record.Record) {
	events, _ := ex.encode([]record.Record{r})
	_, _ = json.Marshal(events) // an event that cannot be sent is found when it is
}

// applyResult carries out what the answer for a batch asks for.
func (ex *Exporter) applyResult(ctx context.Context, one *partition, batch []record.Record, r sender.Result) (done int, err error) {
	v := cloudevent.Decide(r.Facts, ex.Policy, ex.Clock.Now())
	if v.Do != cloudevent.Done {
		ex.Metrics.errors.WithLabelValues(string(v.Reason)).Inc()
	}
	switch v.Do {
	case cloudevent.Done:
		ex.delivered(one, batch)
		return len(batch), nil
	case cloudevent.Split:
		one.size = max(1, len(batch)/2)
		return 0, nil
	case cloudevent.Bury:
		if err := ex.bury(ctx, batch[0], v.Reason, r.Detail); err != nil {
			return 0, err
		}
		if r.Status != 0 {
			ex.recovered(one)
		}
		return 1, nil
	case cloudevent.Again, cloudevent.Pause:
	}
	return 0, ex.pause(one, v, r.Detail)
}

// delivered notes that the receiver took the batch.
func (ex *Exporter) delivered(one *partition, batch []record.Record) {
	for _, r := range batch {
		ex.Metrics.published.WithLabelValues(success, string(r.Event.ProcessingStrategy)).Inc()
	}
	ex.recovered(one)
}

// recovered notes that the receiver is there and knows us.
func (ex *Exporter) recovered(one *partition) {
	if one.why != "" {
		ex.Log.Info("receiver recovered", "partition", one.name)
	}
	one.pauses.Reset()
	one.notBefore, one.why = time.Time{}, ""
	one.size = min(ex.Batch, 2*one.size)
	ex.breaker.reset()
}

// pause waits before the same events are sent again.
func (ex *Exporter) pause(one *partition, v cloudevent.Verdict, detail string) error {
	wait := max(v.After, one.pauses.NextBackOff())
	until := ex.Clock.Now().Add(wait)
	why := fmt.Sprintf("%s: %s", v.Reason, detail)
	if one.why == "" {
		ex.Log.Warn("event delivery failed, retrying", "partition", one.name, "reason", v.Reason, "detail", detail, "after", wait)
	}
	one.notBefore, one.why = until, why
	if v.Everyone {
		ex.breaker.trip(until, why, v.Do == cloudevent.Pause)
	}
	return retry.Wait(wait, why)
}

// bury keeps an event that the receiver will never take as a dead letter.
func (ex *Exporter) bury(ctx context.Context, r record.Record, why cloudevent.Reason, detail string) error {
	body, err := ex.deadLetter(r)
	if err != nil {
		return err
	}
	err = ex.Records.Dead(ctx, store.DeadLetter{
		ID: r.ID, Source: Consumer, Reason: fmt.Sprintf("%s: %s", why, detail), Body: body, At: ex.Clock.Now(),
	})
	if err != nil {
		return fmt.Errorf("dead-lettering record %s: %w", r.ID, err)
	}
	ex.Log.Error("event dead-lettered", "record", r.ID, "node", r.Event.NodeName, "reason", why, "detail", detail)
	ex.Metrics.dead.WithLabelValues(string(why)).Inc()
	ex.Metrics.published.WithLabelValues(failure, string(r.Event.ProcessingStrategy)).Inc()
	return nil
}

// deadLetter is what a person gets to see: the event, or the record that makes none.
func (ex *Exporter) deadLetter(r record.Record) ([]byte, error) {
	if e, err := ex.Frame.Of(r); err == nil {
		if body, err := json.Marshal(e); err == nil {
			return body, nil
		}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding dead letter %s: %w", r.ID, err)
	}
	return body, nil
}

// breaker holds every request back, for a receiver that asks for a pause, and
// while something is wrong with ourselves.
type breaker struct {
	mu    sync.Mutex
	until time.Time
	why   string
	// trouble is what is wrong with ourselves, or empty.
	trouble string
}

func (b *breaker) trip(until time.Time, why string, ours bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until.After(b.until) {
		b.until, b.why = until, why
	}
	if ours {
		b.trouble = why
	}
}

func (b *breaker) tripped(now time.Time) (until time.Time, why string, yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until, b.why, b.until.After(now)
}

// reset ends our trouble; a pause that was asked for goes on.
func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = ""
}

func (b *breaker) ownFailure() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trouble
}
