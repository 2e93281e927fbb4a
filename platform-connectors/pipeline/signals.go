package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// This part of the package decides which waiting faults of a node are confirmed: by a second
// signal, by being reported again, or by standing for long enough. It folds the events of
// the node's spool, in their order, into a set that is kept durably. It does no I/O and
// reads no clock.

// Bounds of a set.
const (
	// MaxWaits bounds the faults that wait, or were confirmed lately, and MaxSeconds
	// the remembered second signals; beyond, the oldest are forgotten.
	MaxWaits   = 256
	MaxSeconds = 256
	// MaxBytes bounds the waiting faults, about.
	MaxBytes = 4 << 20
)

// Observation is an accepted event with the notes of the pipeline.
type Observation struct {
	// Record is as it was accepted, As its event as the pipeline makes it.
	Record record.Record
	As     record.Event
	// Notes show whether it waits, and for which rules it is the second signal.
	Notes Notes
}

// Signals is what waits on one node; the zero value is empty.
type Signals struct {
	// Ordinal counts folded events; it orders publishers that don't count.
	Ordinal int64          `json:"ordinal"`
	Waits   []WaitingFault `json:"waits,omitempty"`
	Seconds []SecondSignal `json:"seconds,omitempty"`
	// Outbox are the confirmations that were decided and not yet handed on.
	Outbox []record.Record `json:"outbox,omitempty"`
}

// WaitingFault is a fault that waits to be confirmed, or was.
type WaitingFault struct {
	Rule ConfirmRule `json:"rule"`
	// Key identifies the fault: one that comes again is a report of the same.
	Key string `json:"key"`
	// Record is the newest event of it; once it is confirmed, only what a recovery
	// needs of it.
	Record record.Record `json:"record"`
	// Since is when the first was accepted, and Reports are those that count.
	Since   time.Time      `json:"since"`
	Reports []SignalReport `json:"reports,omitempty"`
	// Open are the keys of its entries that did not recover.
	Open []string `json:"open"`
	// ConfirmedAt is zero while it waits.
	ConfirmedAt time.Time `json:"confirmedAt,omitzero"`
}

// SignalReport is one of the events that confirm a fault by their number.
type SignalReport struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// SecondSignal is an event that confirms others.
type SecondSignal struct {
	// Rules are those for which it is the second signal.
	Rules []string `json:"rules"`
	// Key identifies it, as that of a WaitingFault does.
	Key    string        `json:"key"`
	Record record.Record `json:"record"`
	Open   []string      `json:"open"`
}

// WaitEnd is how a wait ended. It is the label value of a counter.
type WaitEnd string

// WaitEnds.
const (
	EndConfirmed WaitEnd = "confirmed"
	EndRecovered WaitEnd = "recovered"
	// Lapsed: nothing confirmed it in time.
	EndLapsed WaitEnd = "lapsed"
	// Forgotten: there were too many.
	EndForgotten WaitEnd = "forgotten"
)

// WaitEnds lists every end, in a fixed order.
func WaitEnds() []WaitEnd { return []WaitEnd{EndConfirmed, EndRecovered, EndLapsed, EndForgotten} }

// Fold takes one event into the set, and returns how waits ended by it, and
// whether anything has changed that must be kept. What is confirmed is in the
// outbox. Folding an event again changes nothing that anybody sees.
func (s *Signals) Fold(x Observation) (ends []WaitEnd, changed bool) {
	s.Ordinal++
	x.Record.Append = s.Ordinal
	if x.Record.Event.Confirms() != "" {
		return nil, s.handedOn(x.Record.ID)
	}
	if x.As.IsHealthy {
		return s.recover(x)
	}
	if x.Notes.Waits == nil && len(x.Notes.SecondOf) == 0 {
		return nil, false
	}
	ends = s.lapse(x.Record.CreatedAt)
	if x.Notes.Waits != nil {
		ends = append(ends, s.wait(x, *x.Notes.Waits)...)
	}
	if len(x.Notes.SecondOf) > 0 {
		ends = append(ends, s.second(x)...)
	}
	return append(ends, s.bound()...), true
}

// handedOn takes a confirmation from the outbox that the life before this one has
// handed on, and reports whether it was there.
func (s *Signals) handedOn(id string) bool {
	before := len(s.Outbox)
	s.Outbox = slices.DeleteFunc(s.Outbox, func(r record.Record) bool { return r.ID == id })
	return len(s.Outbox) < before
}

// wait has a fault wait, or be one more report of one that does.
func (s *Signals) wait(x Observation, rule ConfirmRule) (ends []WaitEnd) {
	key := keyOf(x.Record)
	i := slices.IndexFunc(s.Waits, func(w WaitingFault) bool { return w.Key == key })
	switch {
	case i < 0:
		i = len(s.Waits)
		s.Waits = append(s.Waits, WaitingFault{Key: key, Since: x.Record.CreatedAt})
	case !s.Waits[i].ConfirmedAt.IsZero():
		return nil // it is acted upon already
	}
	w := &s.Waits[i]
	w.Rule, w.Record, w.Open = rule, x.Record, keys(x.Record.Event)
	if rule.Reports > 0 {
		w.Reports = append(slices.DeleteFunc(slices.Clone(w.Reports), func(r SignalReport) bool {
			return r.ID == x.Record.ID || apart(r.At, x.Record.CreatedAt) > rule.Within
		}), SignalReport{x.Record.ID, x.Record.CreatedAt})
	}
	if rule.Reports > 0 && len(w.Reports) >= rule.Reports {
		return s.confirm(w, x.Record.ID, fmt.Sprintf("reported %d times within %s", rule.Reports, rule.Within), x.Record.CreatedAt)
	}
	for _, second := range slices.Backward(s.Seconds) {
		if w.pairs(second, second.names()) {
			return s.confirm(w, second.Record.ID, describe(second.Record.Event), x.Record.CreatedAt)
		}
	}
	return nil
}

// second has an event confirm what waits for it, and remembers it.
func (s *Signals) second(x Observation) (ends []WaitEnd) {
	y := SecondSignal{Rules: x.Notes.SecondOf, Key: keyOf(x.Record), Record: trimmed(x.Record), Open: keys(x.Record.Event)}
	devices := y.names()
	for i := range s.Waits {
		if w := &s.Waits[i]; w.ConfirmedAt.IsZero() && w.pairs(y, devices) {
			ends = append(ends, s.confirm(w, y.Record.ID, describe(y.Record.Event), x.Record.CreatedAt)...)
		}
	}
	s.Seconds = slices.DeleteFunc(s.Seconds, func(have SecondSignal) bool {
		return have.Record.ID == y.Record.ID || have.Key == y.Key
	})
	s.Seconds = append(s.Seconds, y)
	return ends
}

// names are those of the devices that it is about.
func (y SecondSignal) names() []string { return names(y.Record.Event, y.Open) }

// pairs reports whether an event, about these devices, is the second signal of a waiting
// fault.
func (w *WaitingFault) pairs(y SecondSignal, devices []string) bool {
	a, b := w.Record, y.Record
	return a.ID != b.ID && slices.Contains(y.Rules, w.Rule.Name) && apart(a.CreatedAt, b.CreatedAt) <= w.Rule.Within &&
		sameBoot(a.Event, b.Event) && a.Event.NodeName == b.Event.NodeName &&
		fault.Compare(a.Node, b.Node) != fault.AnotherMachine &&
		(w.Rule.About == AboutNode || sameDevice(names(a.Event, w.Open), devices))
}

// confirm decides that a fault is acted upon.
func (s *Signals) confirm(w *WaitingFault, by, how string, at time.Time) []WaitEnd {
	e, err := Confirmed(w.Record.Event, w.Rule, by, how)
	if err != nil {
		return nil // the connector admits no such id
	}
	r := record.Record{ID: e.ID, CreatedAt: at, Node: w.Record.Node, Accepted: record.ConfirmationContent(e.ID), Event: e}
	if seq, epoch, ok := e.Seq(); ok {
		r.Seq, r.SeqEpoch = seq, epoch
	}
	s.Outbox = append(s.Outbox, r)
	w.ConfirmedAt, w.Record = at, trimmed(w.Record)
	return []WaitEnd{EndConfirmed}
}

// recover ends what a recovery names. One that is for the record only ends
// nothing.
func (s *Signals) recover(x Observation) (ends []WaitEnd, changed bool) {
	if x.As.ProcessingStrategy != record.Process {
		return nil, false
	}
	left := func(r record.Record, open []string) []string {
		return slices.DeleteFunc(slices.Clone(open), func(key string) bool {
			return slices.ContainsFunc(fault.Entries(r.Event), func(e fault.Entry) bool {
				return e.Key == key && fault.Clears(x.As, r.Event, e) && fault.Before(r, x.Record)
			})
		})
	}
	s.Waits = slices.DeleteFunc(s.Waits, func(w WaitingFault) bool {
		open := left(w.Record, w.Open)
		changed = changed || len(open) < len(w.Open)
		if len(open) == 0 && w.ConfirmedAt.IsZero() {
			ends = append(ends, EndRecovered)
		}
		return len(open) == 0
	})
	for i, w := range s.Waits {
		s.Waits[i].Open = left(w.Record, w.Open)
	}
	s.Seconds = slices.DeleteFunc(s.Seconds, func(y SecondSignal) bool {
		open := left(y.Record, y.Open)
		changed = changed || len(open) < len(y.Open)
		return len(open) == 0
	})
	for i, y := range s.Seconds {
		s.Seconds[i].Open = left(y.Record, y.Open)
	}
	s.Outbox = slices.DeleteFunc(s.Outbox, func(r record.Record) bool {
		over := len(left(r, keys(r.Event))) == 0
		changed = changed || over
		return over
	})
	return ends, changed
}

// lapse drops what is too old by the time of an event that came now.
func (s *Signals) lapse(now time.Time) (ends []WaitEnd) {
	s.Waits = slices.DeleteFunc(s.Waits, func(w WaitingFault) bool {
		if !w.ConfirmedAt.IsZero() {
			return apart(w.ConfirmedAt, now) > w.Rule.Lasts()
		}
		// What may stand for long enough is confirmed or recovers.
		if w.Rule.StandsFor > 0 || apart(w.Record.CreatedAt, now) <= w.Rule.Within {
			return false
		}
		ends = append(ends, EndLapsed)
		return true
	})
	return ends
}

// bound forgets the oldest of what is too much; a confirmed one before one that
// waits.
func (s *Signals) bound() (ends []WaitEnd) {
	bytes := 0
	for _, y := range s.Seconds {
		bytes += size(y.Record.Event)
	}
	for len(s.Seconds) > MaxSeconds || bytes > MaxBytes && len(s.Seconds) > 1 {
		bytes -= size(s.Seconds[0].Record.Event)
		s.Seconds = slices.Delete(s.Seconds, 0, 1)
	}
	bytes = 0
	for _, w := range s.Waits {
		bytes += size(w.Record.Event)
	}
	for len(s.Waits) > MaxWaits || bytes > MaxBytes && len(s.Waits) > 1 {
		i := max(0, slices.IndexFunc(s.Waits, func(w WaitingFault) bool { return !w.ConfirmedAt.IsZero() }))
		if s.Waits[i].ConfirmedAt.IsZero() {
			ends = append(ends, EndForgotten)
		}
		bytes -= size(s.Waits[i].Record.Event)
		s.Waits = slices.Delete(s.Waits, i, i+1)
	}
	return ends
}

// grace is for how long after the end of a window a signal may still be on its way
// from its acceptance to the spool.
const grace = time.Minute

// LapsesIn is how long a wait that waits only for other events goes on; not ok is
// one that does not lapse by time.
func (w *WaitingFault) LapsesIn(now time.Time) (left time.Duration, ok bool) {
	if w.Rule.StandsFor > 0 || !w.ConfirmedAt.IsZero() {
		return 0, false
	}
	return w.Record.CreatedAt.Add(w.Rule.Within + grace).Sub(now), true
}

// Pass takes the time when there are no events: a fault that has stood for long enough, by
// the time that stood returns, is confirmed, and a wait that nothing can confirm any more
// has lapsed. It returns how waits ended.
func (s *Signals) Pass(now time.Time, stood func(WaitingFault) time.Duration) (ends []WaitEnd) {
	s.Waits = slices.DeleteFunc(s.Waits, func(w WaitingFault) bool {
		left, ok := w.LapsesIn(now)
		if ok && left <= 0 {
			ends = append(ends, EndLapsed)
		}
		return ok && left <= 0
	})
	for i := range s.Waits {
		w := &s.Waits[i]
		if w.ConfirmedAt.IsZero() && w.Rule.StandsFor > 0 && stood(*w) >= w.Rule.StandsFor {
			ends = append(ends, s.confirm(w, w.Record.ID, "open for "+w.Rule.StandsFor.String(), now)...)
		}
	}
	return ends
}

// Release makes what was confirmed new, because somebody has ended faults of the
// node, nobody knows which: what comes again waits again. It reports whether there was
// anything.
func (s *Signals) Release() bool {
	before := len(s.Waits)
	s.Waits = slices.DeleteFunc(s.Waits, func(w WaitingFault) bool { return !w.ConfirmedAt.IsZero() })
	return len(s.Waits) < before
}

// Waiting counts the faults that wait.
func (s *Signals) Waiting() (n int) {
	for _, w := range s.Waits {
		if w.ConfirmedAt.IsZero() {
			n++
		}
	}
	return n
}

// Clone is a copy whose lists may be changed.
func (s *Signals) Clone() *Signals {
	return &Signals{s.Ordinal, slices.Clone(s.Waits), slices.Clone(s.Seconds), slices.Clone(s.Outbox)}
}

// describe is an event in words.
func describe(e record.Event) string {
	return strings.TrimSpace(e.Agent + " " + e.CheckName + " " + strings.Join(e.ErrorCode[:min(len(e.ErrorCode), 4)], ","))
}
