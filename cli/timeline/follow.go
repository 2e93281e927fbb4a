package timeline

import (
	"io"
	"reflect"
	"slices"
	"time"
)

// WriteChanges writes what is new in a node's timeline since another one was reported
// (MergeReported), a line for each thing: nothing if nothing is new. The lines stay true
// when more are written below them.
func (t Timeline) WriteChanges(w io.Writer, before Timeline, style Style) error {
	p := style.page()
	p.changes(t, before)
	return p.writeTo(w)
}

// Changed reports whether WriteChanges would write anything.
func (t Timeline) Changed(before Timeline) bool {
	p := Style{}.page()
	p.changes(t, before)
	return p.out.Len() > 0
}

func (p *page) changes(s, before Timeline) {
	if s.Standing.Phase != before.Standing.Phase || s.Standing.Reason != before.Standing.Reason {
		text := joined(p.paint(moodOf(s.Standing.Phase), string(s.Standing.Phase)), truncate(s.Standing.Reason))
		p.line("%s  %s: %s", p.moment(s.At), plain(s.Node), text)
	}
	for i, source := range s.Sources {
		if source != before.Sources[i] {
			p.sources([]Source{source})
			if source.Complete() {
				p.line("  %s readable again", source.Name)
			}
		}
	}
	if s.Pause != before.Pause {
		p.pause(s.Pause, s.Sources, s.At, true)
	}
	if n := s.Sighting; n != nil && (before.Sighting == nil || marksOf(*n) != marksOf(*before.Sighting)) {
		p.sighting(Node{Ready: n.Ready, Unschedulable: n.Unschedulable, Taints: n.Taints, State: n.State, Identity: n.Identity})
	}
	for _, note := range fresh(s.Notes, before.Notes) {
		p.line("%s", p.paint(Alert, "! "+truncate(note)))
	}
	for _, note := range fresh(s.Settled, before.Settled) {
		p.line("  %s", truncate(note))
	}
	p.freshSteps(s, before)
	p.freshGroups(s.Others, before.Others, s.At)
}

// marksOf returns what a line about the Node shows of it.
func marksOf(n Node) string {
	p := Style{}.page()
	p.sighting(Node{Ready: n.Ready, Unschedulable: n.Unschedulable, Taints: n.Taints, State: n.State, Identity: n.Identity})
	return p.out.String()
}

// MergeReported returns the timeline with all that has been reported by now: what could
// not be read is as it was reported before.
func (t Timeline) MergeReported(before Timeline) Timeline {
	t.reportedSteps = map[string][]Step{}
	for id, steps := range before.reportedSteps {
		t.reportedSteps[id] = slices.Clone(steps)
	}
	for _, stay := range t.Stays {
		for _, c := range stay.Chains {
			t.reportedSteps[c.Record] = append(t.reportedSteps[c.Record], fresh(c.Steps, t.reportedSteps[c.Record])...)
		}
	}
	if !t.Sources[0].Read {
		t.Others, t.Settled = before.Others, before.Settled
		t.Notes = slices.Concat(t.Notes, fresh(before.Notes, t.Notes))
	}
	if t.Sighting == nil && !t.Sources[1].Read {
		t.Sighting = before.Sighting
	}
	return t
}

// freshSteps writes the steps of all faults that were not reported before. The phase
// shows what is waited for.
func (p *page) freshSteps(s, before Timeline) {
	for _, stay := range s.Stays {
		for _, c := range stay.Chains {
			steps := Chain{Record: c.Record}
			for _, x := range fresh(c.Steps, before.reportedSteps[c.Record]) {
				if x.Kind != Waiting {
					steps.Steps = append(steps.Steps, x)
				}
			}
			if len(steps.Steps) > 0 {
				p.line("  fault %s", plain(c.Record))
				p.chain(steps, true)
			}
		}
	}
}

// freshGroups writes the kinds of records that have become more.
func (p *page) freshGroups(groups, before []Group, now time.Time) {
	var more []Group
	for _, g := range groups {
		known := false
		for _, b := range before {
			known = known || g.Text == b.Text && g.Strategy == b.Strategy && g.Reason == b.Reason && g.Count == b.Count
		}
		if !known {
			more = append(more, g)
		}
	}
	p.groups(more, now)
}

// fresh are those of a list that another one has not.
func fresh[T any](list, before []T) (out []T) {
	for _, x := range list {
		known := false
		for _, b := range before {
			known = known || reflect.DeepEqual(x, b)
		}
		if !known {
			out = append(out, x)
		}
	}
	return out
}

// Same reports whether two surveys show the same, except for times that pass and for
// consumers that are a little behind, which all are now and then.
func (f Fleet) Same(other Fleet) bool {
	return reflect.DeepEqual(f.still(), other.still())
}

// still is a survey without what moves all the time.
func (f Fleet) still() Fleet {
	consumers := f.Consumers
	f.At, f.Consumers = time.Time{}, nil
	if f.DryRun != nil {
		dry := *f.DryRun
		dry.At = time.Time{}
		f.DryRun = &dry
	}
	for _, c := range consumers {
		f.Consumers = append(f.Consumers, Consumer{Name: c.Name, Known: c.Known, Problem: c.Problem, More: c.More, Lost: c.Lost})
	}
	return f
}
