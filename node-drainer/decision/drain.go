package decision

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eviction"
)

// drain is the drain of one session whose Node is marked.
type drain struct {
	view   View
	policy Policy
	// undone are the session's records that are owed a drain, oldest first.
	undone []record.Record
	now    time.Time
}

// due are the pods that still must go, for what is owed a drain and for what
// was drained and is not repaired: a fault widens the extent, it never moves it.
func (d drain) due() []eviction.Due {
	return eviction.Owing(d.view.Pods, d.demands(), d.policy.Eviction, d.now)
}

func (d drain) demands() []eviction.Demand {
	return d.policy.Eviction.Demands(d.view.Records, d.view.Node.Session)
}

// where names the extent of a drain that is not the whole node's.
func (d drain) where() string {
	extent := eviction.Union(d.demands())
	if extent.IsWholeNode() || extent.IsNothing() {
		return ""
	}
	return " on " + cut(extent.String())
}

func (d drain) next() Step {
	due := d.due()
	running, started := d.running()
	if s, ok := d.leaveAlone(due, running); started && ok {
		return s
	}
	switch {
	case len(due) == 0:
		return d.finish(running, started)
	case !started:
		s := Step{Kind: Start, Why: PodsToMove, Session: d.view.Node.Session, Label: drainingLabel(d.view.Node.State), Left: len(due)}
		s.update(d.beginner(), record.EvictionInProgress, count(len(due), len(due))+d.where())
		return s
	}
	return d.report(running, d.sort(due))
}

// keepEmpty takes pods away that came to the node after its drain. The drain is over:
// all it records is whose pods come back every time.
func (d drain) keepEmpty() Step {
	due := d.due()
	if s, ok := d.leaveAlone(due, d.beginner()); ok {
		return s
	}
	left := d.sort(due)
	if len(left) == 0 {
		return Step{Kind: Wait, Why: KeepingEmpty, Session: d.view.Node.Session, Until: d.until(nil)}
	}
	s := d.move(left)
	if s.Kind != Wait {
		s.Why = PodsBack
	}
	return s
}

// running is the record that carries the drain.
func (d drain) running() (record.Record, bool) {
	i := slices.IndexFunc(d.undone, func(r record.Record) bool {
		return r.Status.UserPodsEvictionStatus.Status == record.EvictionInProgress
	})
	if i < 0 {
		return record.Record{}, false
	}
	return d.undone[i], true
}

// beginner is the record that carries a new drain: the one that opened the
// session, else the oldest.
func (d drain) beginner() record.Record {
	i := slices.IndexFunc(d.undone, func(r record.Record) bool { return r.ID == r.Status.Session })
	return d.undone[max(i, 0)]
}

// finish gives Succeeded to the record that carried the drain, AlreadyDrained
// to the others. Faults that come after a drain, to a node that is still
// empty, are AlreadyDrained.
func (d drain) finish(running record.Record, started bool) Step {
	s := Step{Kind: Finish, Why: PodsGone, Session: d.view.Node.Session, Label: drainedLabel(d.view.Node.State)}
	carrier := running.ID
	if !started && d.drainedBefore() {
		s.Why = DrainedBefore
	} else if !started {
		carrier = d.beginner().ID
	}
	for _, r := range d.undone {
		if r.ID == carrier {
			s.Lost = d.lost()
			s.update(r, record.EvictionSucceeded, "all Pods to evict have left the node"+d.where()+leftToRepair(s.Lost)+leftAlone(d.comeBack()))
		} else {
			s.update(r, record.AlreadyDrained, "drained with its quarantine session "+r.Status.Session)
		}
	}
	return s
}

func (d drain) drainedBefore() bool {
	return slices.ContainsFunc(d.view.Records, func(r record.Record) bool {
		return r.Status.Session == d.view.Node.Session && r.Status.UserPodsEvictionStatus.Status == record.EvictionSucceeded
	})
}

// report moves pods, shows the state of the drain, and writes its progress when
// it waits.
func (d drain) report(running record.Record, left []pending) Step {
	s := d.move(left)
	s.Label = drainingLabel(d.view.Node.State)
	before := running.Status.UserPodsEvictionStatus.Message
	message := progress(left, d.where(), before)
	if s.Kind != Wait || message == before {
		return s
	}
	next := d.view.ReportedAt.Add(d.policy.ReportEvery)
	if d.now.Before(next) && !d.now.Before(d.view.ReportedAt) { // before: the clock was set back
		s.Until = earliest(s.Until, next)
		return s
	}
	s.update(running, record.EvictionInProgress, message)
	return s
}

// move takes the next batch of pods away, or waits.
func (d drain) move(left []pending) Step {
	s := Step{Session: d.view.Node.Session, Left: len(left)}
	if s.Pods = d.batch(left, toEvict); len(s.Pods) > 0 {
		s.Kind, s.Why = Evict, ImmediatePods
		return s
	}
	if s.Pods = d.batch(left, toDelete); len(s.Pods) > 0 {
		s.Kind, s.Why = Delete, DeadlinePassed
		return s
	}
	s.Kind, s.Why, s.Until, s.Blocked = Wait, dominant(left), d.until(left), d.blocked(left)
	return s
}

func (d drain) batch(left []pending, phase phase) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range left {
		if p.phase == phase && len(pods) < max(d.policy.Batch, 1) {
			pods = append(pods, p.pod)
		}
	}
	return pods
}

// until is the earliest instant at which time alone changes the step.
func (d drain) until(left []pending) time.Time {
	at := d.now.Add(d.policy.Recheck)
	for _, p := range left {
		at = earliest(at, p.next)
		if p.overdue.After(d.now) {
			at = earliest(at, p.overdue)
		}
		if lost, ok := eviction.LostAt(p.pod, d.policy.Eviction); ok && lost.After(d.now) {
			at = earliest(at, lost)
		}
	}
	return at
}

// earliest ignores a zero b.
func earliest(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
