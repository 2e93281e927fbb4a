package reconciler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// errFull is the refusal of a reading that would open too much.
var errFull = errors.New("limit of open maintenances reached")

// poll reads the provider and saves what it reports. A provider that fails is no error of
// the round.
func (r *Reconciler) poll(ctx context.Context) error {
	machines := r.Fleet()
	if !machines.Known {
		r.polledAt = time.Time{} // asked again when they are
		return nil
	}
	q := announcement.Question{
		Checkpoint: r.provider.Checkpoint, Open: slices.Sorted(maps.Keys(r.open())), Machines: machines.Machines, Now: r.Clock.Now(),
	}
	reading, err := r.read(ctx, q)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.note("provider", err)
	if err != nil {
		r.Metrics.PollErrors.Inc()
		return r.unreachable(ctx)
	}
	r.Metrics.LastPoll.Set(float64(r.Clock.Now().Unix()))
	r.failing = time.Time{}
	r.identify(ctx, machines)
	return r.take(ctx, q, reading, machines.WithNames(r.names))
}

// open are the maintenances that the provider has not ended.
func (r *Reconciler) open() map[string]maintenance.Event {
	out := make(map[string]maintenance.Event, len(r.mirror))
	for id, e := range r.mirror {
		if !e.CSPStatus.Ended() {
			out[id] = e
		}
	}
	return out
}

// read asks the provider, for a bounded time. The lock is held: nothing is reported
// meanwhile that this process has not decided, and what it has decided was sent to
// the publisher before.
func (r *Reconciler) read(ctx context.Context, q announcement.Question) (announcement.Reading, error) {
	r.mu.Unlock() // what waits is acknowledged meanwhile
	defer r.mu.Lock()
	began := r.Clock.Now()
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	reading, err := r.Source.Read(ctx, q)
	r.Metrics.Polls.Inc()
	r.Metrics.Calls.Add(float64(reading.Calls))
	r.Metrics.PollTime.Observe(r.Clock.Since(began).Seconds())
	if err != nil {
		return reading, fmt.Errorf("reading %s: %w", r.Origin.CSP, err)
	}
	return reading, nil
}

// take folds a reading into the stored documents and saves it with its checkpoint.
func (r *Reconciler) take(ctx context.Context, q announcement.Question, reading announcement.Reading, machines Fleet) error {
	if err := r.load(ctx); err != nil { // an acknowledgement may have failed meanwhile
		return err
	}
	known, err := r.storedOf(ctx, reading.Announcements)
	if err != nil {
		return err
	}
	changed := r.fold(reading.Announcements, known, machines)
	r.vanished(q, reading, changed, r.Clock.Now())
	return r.saveReading(ctx, changed, reading.Checkpoint)
}

// fold lists the documents that announcements change.
func (r *Reconciler) fold(all []announcement.Announcement, known map[string]maintenance.Event, machines Fleet) map[string]maintenance.Event {
	now := r.Clock.Now()
	changed := map[string]maintenance.Event{}
	for _, a := range all {
		if r.undecodable[a.ID] {
			continue
		}
		var before *maintenance.Event
		if e, ok := known[a.ID]; ok {
			before = &e
		}
		node, _ := machines.OfMachine(a.Machine)
		e, change := lifecycle.Fold(before, a, r.Origin, node.Name, now)
		r.Metrics.Announcements.WithLabelValues(string(change)).Inc()
		switch change {
		case lifecycle.Refused:
			r.Log.Error("announcement ignored: id or machine is missing or too long",
				"id", fmt.Sprintf("%.64q", a.ID), "machine", fmt.Sprintf("%.64q", a.Machine))
		case lifecycle.Unchanged, lifecycle.Stale:
		case lifecycle.First, lifecycle.Updated, lifecycle.Reopened, lifecycle.Revived, lifecycle.Vanished:
			known[a.ID], changed[a.ID] = e, e
		}
	}
	return changed
}

// storedOf are the stored documents of the announcements.
func (r *Reconciler) storedOf(ctx context.Context, all []announcement.Announcement) (map[string]maintenance.Event, error) {
	out := make(map[string]maintenance.Event, len(all))
	var ask []string
	for _, a := range all {
		if e, ok := r.mirror[a.ID]; ok {
			out[a.ID] = e
		} else if a.ID != "" {
			ask = append(ask, a.ID)
		}
	}
	slices.Sort(ask)
	found, err := r.Store.Maintenances(ctx, r.Origin.CSP, slices.Compact(ask))
	if err := r.skipUndecodable(err); err != nil {
		return nil, err
	}
	for _, e := range found {
		out[e.EventID] = e
	}
	return out, nil
}

// vanished ends what was asked for and is not listed by a reading that lists all.
func (r *Reconciler) vanished(q announcement.Question, reading announcement.Reading, changed map[string]maintenance.Event, now time.Time) {
	if !reading.Complete {
		return
	}
	listed := make(map[string]bool, len(reading.Announcements))
	for _, a := range reading.Announcements {
		listed[a.ID] = true
	}
	for _, id := range q.Open {
		before, ok := r.mirror[id]
		if !ok || listed[id] {
			continue
		}
		if e, change := lifecycle.Vanish(before, now); change == lifecycle.Vanished {
			r.Metrics.Announcements.WithLabelValues(string(change)).Inc()
			changed[id] = e
		}
	}
}

// saveReading saves what a reading changed. A provider that answers is not
// unreachable any more.
func (r *Reconciler) saveReading(ctx context.Context, changed map[string]maintenance.Event, checkpoint string) error {
	provider := r.provider
	provider.Checkpoint, provider.ReadAt = checkpoint, r.Clock.Now().UTC().Truncate(time.Microsecond)
	provider.Unreachable = r.reachable(provider.Unreachable)
	if !r.hasCapacity(changed) {
		return nil
	}
	if len(changed) == 0 && checkpoint == r.provider.Checkpoint && provider.Unreachable == r.provider.Unreachable && r.provider.Revision > 0 {
		return nil
	}
	crashpoint.Here(lifecycle.Agent + "/read")
	err := r.save(ctx, slices.Collect(maps.Values(changed)), &provider)
	crashpoint.Here(lifecycle.Agent + "/saved")
	return err
}

// hasCapacity reports whether so much may be open, and sets the readiness by it. A reading
// that is not taken is asked for again.
func (r *Reconciler) hasCapacity(changed map[string]maintenance.Event) bool {
	fresh := 0
	for id := range changed {
		if _, ok := r.mirror[id]; !ok {
			fresh++
		}
	}
	fits := len(r.mirror)+fresh <= MaxUnfinished
	var full error
	if !fits {
		full = fmt.Errorf("%w: %d and %d new ones, at most %d, so this poll is discarded and repeated", errFull, len(r.mirror), fresh, MaxUnfinished)
	}
	r.note("bound", full)
	return fits
}
