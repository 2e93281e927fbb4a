// Package export sends every stored record to the receiver: in order per node,
// at least once, with the position stored after the effect and never before.
package export

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
	"github.com/nvidia/nvsentinel/event-exporter/answer"
	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/event-exporter/internal/post"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Receiver takes events.
type Receiver interface {
	Send(ctx context.Context, events []event.Event) post.Result
}

// Pauses between two tries of the same events.
type Pauses struct {
	Initial, Longest time.Duration
	Multiplier       float64
}

// Desk is the exporter between store and receiver.
type Desk struct {
	// Records are the store's, which keeps what no receiver will take as dead letters.
	Records  store.Store
	Receiver Receiver
	Frame    cloudevent.Frame
	Policy   answer.Policy
	Pauses   Pauses
	// Lanes is how many requests are under way at once, Batch how many events
	// one of them carries at most.
	Lanes, Batch int
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

	lanes   map[string]*lane
	turn    turn
	gate    gate
	service *consumer.Service
}

// Consumer is the exporter's name in the store.
const Consumer = "event-exporter"

// Service makes the desk a consumer of the store, once: it sends the records
// themselves, each after its turn, and begins with the look-back if the exporter never
// ran on this store.
func (d *Desk) Service() *consumer.Service {
	d.lanes = d.newLanes()
	if d.Rate > 0 {
		d.turn.limit = rate.NewLimiter(rate.Limit(d.Rate), max(1, int(d.Rate)))
	}
	d.service = &consumer.Service{
		Name: Consumer, Metrics: Namespace, Store: d.Records, Selector: record.AllHealthEventInserts(),
		Since: func() time.Time { return d.Clock.Now().Add(-d.LookBack) }, Key: d.key, Items: d.Send, Weight: weight, Pace: d.pace, Workers: d.Lanes,
	}
	return d.service
}

func (d *Desk) key(r record.Record) string {
	d.Metrics.received.WithLabelValues(string(r.Event.ProcessingStrategy)).Inc()
	return d.laneOf(r)
}

// Send sends the first records of a lane in one request; done are those that are
// delivered or buried.
func (d *Desk) Send(ctx context.Context, name string, records []record.Record) (done int, err error) {
	one := d.lanes[name]
	if err := d.mayGo(one); err != nil {
		return 0, err
	}
	return d.deliver(ctx, one, records[:min(len(records), one.size)])
}

// mayGo waits out the pauses of the lane and of everyone.
func (d *Desk) mayGo(one *lane) error {
	now := d.Clock.Now()
	if until, why, closed := d.gate.closed(now); closed {
		return outcome.Wait(until.Sub(now), why)
	}
	if one.notBefore.After(now) {
		return outcome.Wait(one.notBefore.Sub(now), one.why)
	}
	return nil
}

// deliver sends one request with the batch, or its beginning, and does what the
// answer asks for. It returns how many of the batch are settled.
func (d *Desk) deliver(ctx context.Context, one *lane, batch []record.Record) (done int, err error) {
	events, broken := d.encode(batch)
	if len(events) == 0 {
		facts := answer.Facts{Events: 1, Unencodable: true}
		return d.judge(ctx, one, batch[:1], post.Result{Facts: facts, Detail: broken.Error()})
	}
	// A leader that lost its lease sends nothing more.
	fenced, cancel := lease.Fence(ctx)
	defer cancel()
	if fenced.Err() != nil {
		return 0, outcome.Wait(time.Second, "the lease is not renewed")
	}
	began := d.Clock.Now()
	result := d.Receiver.Send(fenced, events)
	d.Metrics.duration.Observe(d.Clock.Since(began).Seconds())
	if ctx.Err() != nil && result.Status == 0 {
		return 0, ctx.Err() // cut short by the end of the process
	}
	return d.judge(ctx, one, batch[:len(events)], result)
}

// encode makes the events of the batch, up to the first record that makes none.
func (d *Desk) encode(batch []record.Record) ([]event.Event, error) {
	events := make([]event.Event, 0, len(batch))
	for _, r := range batch {
		crashpoint.DieOf(Consumer, r.Event.Message)
		e, err := d.Frame.Of(r)
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// Try makes what would be sent of a record, and sends nothing.
func (d *Desk) Try(_ context.Context, r record.Record) {
	events, _ := d.encode([]record.Record{r})
	_, _ = json.Marshal(events) // an event that cannot be sent is found when it is
}

// judge carries out what the answer for a batch asks for.
func (d *Desk) judge(ctx context.Context, one *lane, batch []record.Record, r post.Result) (done int, err error) {
	v := answer.Decide(r.Facts, d.Policy, d.Clock.Now())
	if v.Do != answer.Done {
		d.Metrics.errors.WithLabelValues(string(v.Reason)).Inc()
	}
	switch v.Do {
	case answer.Done:
		d.delivered(one, batch)
		return len(batch), nil
	case answer.Split:
		one.size = max(1, len(batch)/2)
		return 0, nil
	case answer.Bury:
		if err := d.bury(ctx, batch[0], v.Reason, r.Detail); err != nil {
			return 0, err
		}
		if r.Status != 0 {
			d.recovered(one)
		}
		return 1, nil
	case answer.Again, answer.Pause:
	}
	return 0, d.pause(one, v, r.Detail)
}

// delivered notes that the receiver took the batch.
func (d *Desk) delivered(one *lane, batch []record.Record) {
	for _, r := range batch {
		d.Metrics.published.WithLabelValues(success, string(r.Event.ProcessingStrategy)).Inc()
	}
	d.recovered(one)
}

// recovered notes that the receiver is there and knows us.
func (d *Desk) recovered(one *lane) {
	if one.why != "" {
		d.Log.Info("the receiver answers again", "lane", one.name)
	}
	one.pauses.Reset()
	one.notBefore, one.why = time.Time{}, ""
	one.size = min(d.Batch, 2*one.size)
	d.gate.open()
}

// pause waits before the same events are sent again.
func (d *Desk) pause(one *lane, v answer.Verdict, detail string) error {
	wait := max(v.After, one.pauses.NextBackOff())
	until := d.Clock.Now().Add(wait)
	why := fmt.Sprintf("%s: %s", v.Reason, detail)
	if one.why == "" {
		d.Log.Warn("not delivered, trying again", "lane", one.name, "reason", v.Reason, "detail", detail, "after", wait)
	}
	one.notBefore, one.why = until, why
	if v.Everyone {
		d.gate.close(until, why, v.Do == answer.Pause)
	}
	return outcome.Wait(wait, why)
}

// bury keeps an event that the receiver will never take as a dead letter.
func (d *Desk) bury(ctx context.Context, r record.Record, why answer.Reason, detail string) error {
	body, err := d.letter(r)
	if err != nil {
		return err
	}
	err = d.Records.Dead(ctx, store.DeadLetter{
		ID: r.ID, Source: Consumer, Reason: fmt.Sprintf("%s: %s", why, detail), Body: body, At: d.Clock.Now(),
	})
	if err != nil {
		return fmt.Errorf("burying record %s: %w", r.ID, err)
	}
	d.Log.Error("event buried as a dead letter", "record", r.ID, "node", r.Event.NodeName, "reason", why, "detail", detail)
	d.Metrics.dead.WithLabelValues(string(why)).Inc()
	d.Metrics.published.WithLabelValues(failure, string(r.Event.ProcessingStrategy)).Inc()
	return nil
}

// letter is what a person gets to see: the event, or the record that makes none.
func (d *Desk) letter(r record.Record) ([]byte, error) {
	if e, err := d.Frame.Of(r); err == nil {
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

// gate holds every request back, for a receiver that asks for a pause, and
// while something is wrong with ourselves.
type gate struct {
	mu    sync.Mutex
	until time.Time
	why   string
	// trouble is what is wrong with ourselves, or empty.
	trouble string
}

func (g *gate) close(until time.Time, why string, ours bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.After(g.until) {
		g.until, g.why = until, why
	}
	if ours {
		g.trouble = why
	}
}

func (g *gate) closed(now time.Time) (until time.Time, why string, yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until, g.why, g.until.After(now)
}

// open ends our trouble; a pause that was asked for goes on.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trouble = ""
}

func (g *gate) ours() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.trouble
}
