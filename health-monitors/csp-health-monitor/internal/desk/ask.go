package desk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/fleet"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// errFull is the refusal of a reading that would open too much.
var errFull = errors.New("more maintenances are open than are kept")

// ask reads the provider and books what it says. A provider that fails is no error of
// the round.
func (d *Desk) ask(ctx context.Context) error {
	machines := d.Fleet()
	if !machines.Known {
		d.asked = time.Time{} // asked again when they are
		return nil
	}
	q := announcement.Question{
		Checkpoint: d.provider.Checkpoint, Open: slices.Sorted(maps.Keys(d.open())), Machines: machines.Machines, Now: d.Clock.Now(),
	}
	reading, err := d.read(ctx, q)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.note("provider", err)
	if err != nil {
		d.Metrics.PollErrors.Inc()
		return d.unreachable(ctx)
	}
	d.Metrics.LastPoll.Set(float64(d.Clock.Now().Unix()))
	d.failing = time.Time{}
	return d.take(ctx, q, reading, machines)
}

// open are the maintenances that the provider has not ended.
func (d *Desk) open() map[string]maintenance.Event {
	out := make(map[string]maintenance.Event, len(d.mirror))
	for id, e := range d.mirror {
		if !e.CSPStatus.Ended() {
			out[id] = e
		}
	}
	return out
}

// read asks the provider, for a bounded time. The lock is held: nothing is told
// meanwhile that this process has not decided, and what it has decided was sent to
// the publisher before.
func (d *Desk) read(ctx context.Context, q announcement.Question) (announcement.Reading, error) {
	d.mu.Unlock() // what waits is acknowledged meanwhile
	defer d.mu.Lock()
	began := d.Clock.Now()
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	reading, err := d.Source.Read(ctx, q)
	d.Metrics.Polls.Inc()
	d.Metrics.Calls.Add(float64(reading.Calls))
	d.Metrics.PollTime.Observe(d.Clock.Since(began).Seconds())
	if err != nil {
		return reading, fmt.Errorf("reading %s: %w", d.Place.CSP, err)
	}
	return reading, nil
}

// take folds a reading into the stored documents and books it with its checkpoint.
func (d *Desk) take(ctx context.Context, q announcement.Question, r announcement.Reading, machines fleet.Fleet) error {
	if err := d.load(ctx); err != nil { // an acknowledgement may have failed meanwhile
		return err
	}
	known, err := d.known(ctx, r.Announcements)
	if err != nil {
		return err
	}
	changed := d.fold(r.Announcements, known, machines)
	d.vanished(q, r, changed, d.Clock.Now())
	return d.bookReading(ctx, changed, r.Checkpoint)
}

// fold lists the documents that announcements change.
func (d *Desk) fold(all []announcement.Announcement, known map[string]maintenance.Event, machines fleet.Fleet) map[string]maintenance.Event {
	now := d.Clock.Now()
	changed := map[string]maintenance.Event{}
	for _, a := range all {
		if d.aside[a.ID] {
			continue
		}
		var before *maintenance.Event
		if e, ok := known[a.ID]; ok {
			before = &e
		}
		node, _ := machines.OfMachine(a.Machine)
		e, change := lifecycle.Fold(before, a, d.Place, node.Name, now)
		d.Metrics.Announcements.WithLabelValues(string(change)).Inc()
		switch change {
		case lifecycle.Refused:
			d.Log.Error("an announcement cannot be kept: it has no id or machine, or one that is too long",
				"id", fmt.Sprintf("%.64q", a.ID), "machine", fmt.Sprintf("%.64q", a.Machine))
		case lifecycle.Unchanged, lifecycle.Stale:
		case lifecycle.First, lifecycle.Updated, lifecycle.Reopened, lifecycle.Revived, lifecycle.Vanished:
			known[a.ID], changed[a.ID] = e, e
		}
	}
	return changed
}

// known are the stored documents of the announcements.
func (d *Desk) known(ctx context.Context, all []announcement.Announcement) (map[string]maintenance.Event, error) {
	out := make(map[string]maintenance.Event, len(all))
	var ask []string
	for _, a := range all {
		if e, ok := d.mirror[a.ID]; ok {
			out[a.ID] = e
		} else if a.ID != "" {
			ask = append(ask, a.ID)
		}
	}
	slices.Sort(ask)
	found, err := d.Store.Maintenances(ctx, d.Place.CSP, slices.Compact(ask))
	if err := d.setAside(err); err != nil {
		return nil, err
	}
	for _, e := range found {
		out[e.EventID] = e
	}
	return out, nil
}

// vanished ends what was asked for and is not listed by a reading that lists all.
func (d *Desk) vanished(q announcement.Question, r announcement.Reading, changed map[string]maintenance.Event, now time.Time) {
	if !r.Complete {
		return
	}
	listed := make(map[string]bool, len(r.Announcements))
	for _, a := range r.Announcements {
		listed[a.ID] = true
	}
	for _, id := range q.Open {
		before, ok := d.mirror[id]
		if !ok || listed[id] {
			continue
		}
		if e, change := lifecycle.Vanish(before, now); change == lifecycle.Vanished {
			d.Metrics.Announcements.WithLabelValues(string(change)).Inc()
			changed[id] = e
		}
	}
}

// bookReading books what a reading changed. A provider that answers is not
// unreachable any more.
func (d *Desk) bookReading(ctx context.Context, changed map[string]maintenance.Event, checkpoint string) error {
	provider := d.provider
	provider.Checkpoint, provider.ReadAt = checkpoint, d.Clock.Now().UTC().Truncate(time.Microsecond)
	provider.Unreachable = d.reachable(provider.Unreachable)
	if !d.room(changed) {
		return nil
	}
	if len(changed) == 0 && checkpoint == d.provider.Checkpoint && provider.Unreachable == d.provider.Unreachable && d.provider.Revision > 0 {
		return nil
	}
	crashpoint.Here(lifecycle.Agent + "/read")
	err := d.book(ctx, slices.Collect(maps.Values(changed)), &provider)
	crashpoint.Here(lifecycle.Agent + "/booked")
	return err
}

// room says whether so much may be open, and has readiness say it. A reading that is
// not taken is asked for again.
func (d *Desk) room(changed map[string]maintenance.Event) bool {
	fresh := 0
	for id := range changed {
		if _, ok := d.mirror[id]; !ok {
			fresh++
		}
	}
	fits := len(d.mirror)+fresh <= MaxUnfinished
	var full error
	if !fits {
		full = fmt.Errorf("%w: %d and %d new ones, at most %d; the reading is not taken", errFull, len(d.mirror), fresh, MaxUnfinished)
	}
	d.note("bound", full)
	return fits
}
