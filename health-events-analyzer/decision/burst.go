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
