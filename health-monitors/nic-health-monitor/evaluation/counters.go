package evaluation

import (
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// counters evaluates the error counters of a card's ports.
func (ps *pass) counters(d Device) {
	for _, p := range d.Ports {
		for _, rule := range ps.p.Counters {
			if value, read := p.Counters[rule.Name]; read {
				ps.counter(d, p, rule, Sample{ps.r.At, value})
			}
		}
	}
}

func (ps *pass) counter(d Device, p Port, rule Counter, now Sample) {
	card := ps.m.Cards[d.Location]
	card.Ports = copied(card.Ports)
	link := card.Ports[p.Number]
	link.Courses = copied(link.Courses)
	course, reset, over := link.Courses[rule.Code].step(rule, now)
	link.Courses[rule.Code] = course
	card.Ports[p.Number] = link
	ps.m.Cards[d.Location] = card

	k := Key{DegradationCheck(p.Layer), d.Name, p.Number, rule.Code}
	f, open := ps.m.Open[k]
	switch {
	case reset && open:
		ps.seen[k] = sight{now: true, reason: SetBack, text: rule.Name + " was reset", location: d.Location}
	case over != "" && open && !ps.raised(f):
		f.Last = now.At
		ps.m.Open[k] = f
	case over != "":
		ps.seen[k] = sight{
			bad: true, now: true, fatal: rule.Fatal, action: rule.Action, text: over, location: d.Location, guid: d.GUID, counted: true,
		}
	case open && !rule.latches() && now.At.Sub(f.Last) >= ps.p.QuietTime:
		ps.seen[k] = sight{now: true, reason: Quiet, text: rule.Name + " is within its limit", location: d.Location}
	}
}

// latches reports whether its fault stays until the counter is set back or the node
// reboots.
func (r Counter) latches() bool { return r.Fatal || r.Window == 0 }

// retired ends the faults of counters that have no rule any more.
func (ps *pass) retired() {
	for k, f := range ps.m.Open {
		ruled := slices.ContainsFunc(ps.p.Counters, func(r Counter) bool { return r.Code == k.Code })
		if f.Counted && !ruled {
			ps.seen[k] = sight{now: true, reason: Unwatched, text: "no rule watches this counter", location: f.Location}
		}
	}
}

// Counter is the rule of one error counter of a port.
type Counter struct {
	// Code is the error code of its fault.
	Code string
	// Name is the counter, as its file is called.
	Name string
	// More than Over within Window is a fault; without a window, more than Over
	// since the first look of the boot or the last fault.
	Over   uint64
	Window time.Duration
	Fatal  bool
	Action record.Action
}

// Counters are the built-in rules: those of the predecessor.
func Counters() []Counter {
	fatal := func(name string) Counter {
		return Counter{Code: name, Name: name, Fatal: true, Action: record.ActionReplaceVM}
	}
	rate := func(name string, over uint64, window time.Duration) Counter {
		return Counter{Code: name, Name: name, Over: over, Window: window, Action: record.ActionNone}
	}
	return []Counter{
		fatal("link_downed"), fatal("excessive_buffer_overrun_errors"), fatal("local_link_integrity_errors"), fatal("rnr_nak_retry_err"),
		{Code: "symbol_error_fatal", Name: "symbol_error", Over: 120, Window: time.Hour, Fatal: true, Action: record.ActionReplaceVM},
		rate("symbol_error", 10, time.Second), rate("link_error_recovery", 5, time.Minute), rate("port_rcv_errors", 10, time.Second),
		rate("local_ack_timeout_err", 1, time.Second), rate("port_xmit_discards", 100, time.Second), rate("roce_slow_restart", 10, time.Second),
		// One loss of the carrier and its return are two changes.
		rate("carrier_changes", 1, time.Hour),
	}
}

// Sample is a value of a counter.
type Sample struct {
	At    time.Time `json:"at"`
	Value uint64    `json:"value"`
}

// Course is what is remembered of a counter: its value at the beginning of the
// window, and some between.
type Course []Sample

// slices of a window, at whose ends a value is kept.
const slicesOfWindow = 6

// step takes the next value. reset is true if the counter was set back since; over is by
// how much it went over the bound, as text, empty if it did not.
func (c Course) step(rule Counter, now Sample) (next Course, reset bool, over string) {
	if len(c) == 0 {
		return Course{now}, false, ""
	}
	if last := c[len(c)-1]; now.Value < last.Value || rule.Window > 0 && now.At.Before(last.At) {
		return Course{now}, now.Value < last.Value, ""
	}
	if rule.Window == 0 {
		if grown := now.Value - c[0].Value; grown > rule.Over {
			return Course{now}, false, fmt.Sprintf("%s grew by %d to %d", rule.Name, grown, now.Value)
		}
		return Course{c[0]}, false, ""
	}
	for len(c) > 1 && now.At.Sub(c[1].At) >= rule.Window {
		c = c[1:]
	}
	for _, from := range c[:min(2, len(c))] {
		age, grown := now.At.Sub(from.At), now.Value-from.Value
		allowed := float64(rule.Over) * max(1, age.Seconds()/rule.Window.Seconds())
		if float64(grown) > allowed {
			over = fmt.Sprintf("%s grew by %d to %d within %s", rule.Name, grown, now.Value, age.Round(time.Second))
			break
		}
	}
	next = append(Course(nil), c...)
	if now.At.Sub(next[len(next)-1].At) >= rule.Window/slicesOfWindow {
		next = append(next, now)
	}
	return next, false, over
}
