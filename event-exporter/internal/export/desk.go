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

	"github.com/cenkalti/backoff/v5"
	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/event-exporter/answer"
	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/event-exporter/internal/post"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/store-client/feed"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Receiver takes events.
type Receiver interface {
	Send(ctx context.Context, events []event.Event) post.Result
}

// Graveyard keeps what no receiver will take.
type Graveyard interface {
	Dead(ctx context.Context, letter store.DeadLetter) error
}

// Pauses between two tries of the same events.
type Pauses struct {
	Initial, Longest time.Duration
	Multiplier       float64
}

// Desk is the exporter between store and receiver.
type Desk struct {
	Source    feed.Source
	Graveyard Graveyard
	Receiver  Receiver
	Frame     cloudevent.Frame
	Policy    answer.Policy
	Pauses    Pauses
	// Lanes is how many requests are under way at once, Batch how many events
	// one of them carries at most.
	Lanes, Batch int
	// LookBack is how far back the first start on a store begins.
	LookBack time.Duration
	// Rate bounds the records per second of which each is older than five
	// minutes; 0 is no bound.
	Rate float64
	// Aside says whether a record is passed over because it killed the process; nil
	// is never.
	Aside func(id string) bool
	// MaxLag is the age of the oldest undelivered record from which on the
	// service is not ready; 0 never.
	MaxLag  time.Duration
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics

	lanes *lanes
	gate  gate
}

// Loop is the desk at work; the caller runs it once.
func (d *Desk) Loop(metrics *consume.Metrics) *consume.Loop[record.Record] {
	d.lanes = newLanes(d.Lanes, d.Batch, func() *backoff.ExponentialBackOff {
		return &backoff.ExponentialBackOff{
			InitialInterval: d.Pauses.Initial, MaxInterval: d.Pauses.Longest, Multiplier: d.Pauses.Multiplier,
			RandomizationFactor: backoff.DefaultRandomizationFactor,
		}
	})
	d.Metrics.show(d)
	return &consume.Loop[record.Record]{
		Name: Consumer, Open: d.open, Key: func(r record.Record) string { return d.lanes.of(r).name },
		Handle: d.Handle, Workers: d.Lanes, Clock: d.Clock, Log: d.Log, Metrics: metrics,
	}
}

// Handle sends what waits in a lane. Nil settles everything that was in it
// when it began; an error leaves what is not sent where it is.
func (d *Desk) Handle(ctx context.Context, name string) error {
	one := d.lanes.byName[name]
	for left := d.lanes.waiting(one); left > 0; {
		if err := d.mayGo(one); err != nil {
			return err
		}
		batch := d.lanes.head(one, min(left, one.size))
		done, err := d.deliver(ctx, one, batch)
		d.lanes.settle(one, done)
		left -= done
		if err != nil {
			return err
		}
	}
	return nil
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

// Waiting visits the records that wait in a lane.
func (d *Desk) Waiting(_ context.Context, name string, each func(record.Record) error) error {
	one := d.lanes.byName[name]
	for _, r := range d.lanes.head(one, d.lanes.waiting(one)) {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
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
	err = d.Graveyard.Dead(ctx, store.DeadLetter{
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
