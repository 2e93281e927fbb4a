package judge

import (
	"slices"

	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/fabric"
)

// counters judges the error counters of a card's ports.
func (l *look) counters(d fabric.Device) {
	for _, p := range d.Ports {
		for _, rule := range l.p.Counters {
			if value, read := p.Counters[rule.Name]; read {
				l.counter(d, p, rule, Sample{l.r.At, value})
			}
		}
	}
}

func (l *look) counter(d fabric.Device, p fabric.Port, rule Counter, now Sample) {
	card := l.m.Cards[d.Location]
	card.Ports = copied(card.Ports)
	link := card.Ports[p.Number]
	link.Courses = copied(link.Courses)
	course, reset, over := link.Courses[rule.Code].step(rule, now)
	link.Courses[rule.Code] = course
	card.Ports[p.Number] = link
	l.m.Cards[d.Location] = card

	k := Key{fabric.DegradationCheck(p.Layer), d.Name, p.Number, rule.Code}
	f, open := l.m.Open[k]
	switch {
	case reset && open:
		l.seen[k] = sight{now: true, reason: SetBack, text: rule.Name + " was set back", location: d.Location}
	case over != "" && open && !l.raised(f):
		f.Last = now.At
		l.m.Open[k] = f
	case over != "":
		l.seen[k] = sight{
			bad: true, now: true, fatal: rule.Fatal, action: rule.Action, text: over, location: d.Location, guid: d.GUID, counted: true,
		}
	case open && !rule.latches() && now.At.Sub(f.Last) >= l.p.Quiet:
		l.seen[k] = sight{now: true, reason: Quiet, text: rule.Name + " is within its bound", location: d.Location}
	}
}

// latches says whether its fault stays until the counter is set back or the node
// reboots.
func (r Counter) latches() bool { return r.Fatal || r.Window == 0 }

// retired ends the faults of counters that have no rule any more.
func (l *look) retired() {
	for k, f := range l.m.Open {
		ruled := slices.ContainsFunc(l.p.Counters, func(r Counter) bool { return r.Code == k.Code })
		if f.Counted && !ruled {
			l.seen[k] = sight{now: true, reason: Unwatched, text: "no rule watches the counter", location: f.Location}
		}
	}
}
