package decision

import (
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// bursts numbers the bursts of the subject and counts those that hold what the
// rule counts.
func (q *question) bursts(counted *rule.Match) ([]*Fact, bool) {
	b := q.rule.Bursts
	among := b.Made(*q.rule)
	var bursts [][]*Fact // the counted events of each burst
	var previous, sticky time.Time
	for _, f := range q.choose(&among, b.Shared(*q.rule)) {
		sticks := slices.ContainsFunc(f.Record.Event.ErrorCode, func(c string) bool { return slices.Contains(b.Sticky, c) })
		joins := f.At.Sub(previous) <= b.Gap || sticks && !sticky.IsZero() && f.At.Sub(sticky) <= b.StickyWithin
		if len(bursts) == 0 || !joins {
			bursts = append(bursts, nil)
		}
		previous = f.At
		if sticks {
			sticky = f.At
		}
		if f.matches(counted, q.trigger.At) && q.shares(f, q.rule.By) {
			last := len(bursts) - 1
			bursts[last] = append(bursts[last], f)
		}
	}
	return q.countBursts(bursts)
}

func (q *question) countBursts(bursts [][]*Fact) ([]*Fact, bool) {
	n, found := 0, []*Fact(nil)
	for i, events := range bursts {
		newest := i == len(bursts)-1
		switch q.rule.Bursts.Last {
		case rule.LastAlone:
			if !newest || len(events) != 1 {
				continue
			}
		case rule.LastOnce:
			if newest && len(events) != 1 {
				continue
			}
		case rule.LastAny:
		}
		if len(events) > 0 {
			n++
			found = append(found, events...)
		}
	}
	return found, n >= q.rule.Wanted()
}

// maxRepeats bounds the events of one burst that are counted, whatever a rule asks
// for.
const maxRepeats = 1024

// repeat adds the events that a record stands for besides itself. They share its
// fate, and each has its own time, so that a rule finds what it would have found
// had each been stored.
func (w *Window) repeat(f *Fact) {
	most := min(max(2, w.most()), maxRepeats)
	for i, burst := range f.bursts {
		n := min(burst.Count, most)
		for j := range n {
			if i == len(f.bursts)-1 && j == n-1 {
				break // the record's own
			}
			at := burst.From
			if n > 1 {
				at = at.Add(burst.To.Sub(burst.From) * time.Duration(j) / time.Duration(n-1))
			}
			if at.After(f.At) {
				at = f.At
			}
			other := *f
			other.At, other.closed, other.bursts, other.others = at, slices.Clone(f.closed), nil, nil
			f.others = append(f.others, &other)
		}
	}
	slices.SortFunc(f.others, func(a, b *Fact) int { return a.At.Compare(b.At) })
	for _, other := range f.others {
		w.insert(other)
	}
}

// first is when the first of the events happened for which the record stands.
func (f *Fact) first() time.Time {
	if f.triggers() && len(f.bursts) > 0 && f.bursts[0].From.Before(f.At) {
		return f.bursts[0].From
	}
	return f.At
}

// most is the highest count that a rule wants: of events that come within a second
// more make no difference.
func (w *Window) most() int {
	out := 0
	for i := range w.rules {
		out = max(out, w.rules[i].Wanted())
	}
	return out
}
